"""Ids as our own producers make them, numbered."""

from __future__ import annotations


def shim_id(number: int) -> str:
    return f"s018bcfe5680{number:017x}"


def run_id(number: int) -> str:
    return f"r018bcfe5680{number:017x}"
