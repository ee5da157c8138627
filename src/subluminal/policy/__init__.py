"""Governance as code: load, lint, compile, diff, explain and test policy bundles.

Rules: never in the hot path. The shim reads compiled snapshots; everything here may be slow and thorough.
"""
