"""Doors to the core, one package or module per protocol.

Rules: adapters never import each other, never decide, and reach the core only through `core.gate`.
Each parses without I/O and has exactly one module that does I/O.
"""
