"""The tools of the example servers, in plain Python: nothing of MCP, nothing of Subluminal."""

from __future__ import annotations

NOTES: list[str] = []


def add_note(text: str) -> str:
    """Keep a note."""
    NOTES.append(text)
    return f"note {len(NOTES)}"


def search(word: str) -> str:
    """The notes that contain a word."""
    return "\n".join(note for note in NOTES if word in note) or "nothing found"


def delete_note(number: int) -> str:
    """Forget a note."""
    return NOTES.pop(number - 1)


def export_all() -> str:
    """All notes at once."""
    return "\n".join(NOTES)


TOOLS = (add_note, search, delete_note, export_all)
