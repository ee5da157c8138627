"""In-process admission: the rules of the tool-lock adapter, a face over the same core.

Rules: integer-only, deterministic, total. No clock, no randomness, no I/O in evaluation.
"""
