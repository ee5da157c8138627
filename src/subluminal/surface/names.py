"""Names that look alike: two that have the same outline can be taken for one another, by people and by models.

Case and separators do not count (`read_file`, `readFile`), nor characters that show nothing, nor letters of other
scripts that look like Latin ones. The letters are those that fonts draw alike; there is no claim to know all of them.
"""

from __future__ import annotations

import unicodedata

# Cyrillic, Greek, Armenian and Cherokee letters, small capitals and digits, each beside the Latin letter it looks like.
_ALIKE = {
    "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ё": "e", "ғ": "f", "ɡ": "g", "һ": "h", "і": "i", "ї": "i",
    "ј": "j", "к": "k", "ӏ": "l", "м": "m", "н": "h", "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s", "т": "t",
    "у": "y", "ѵ": "v", "ԝ": "w", "х": "x", "ү": "y", "α": "a", "β": "b", "ε": "e", "ζ": "z", "η": "n", "ι": "i",
    "κ": "k", "ν": "v", "ο": "o", "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x", "ω": "w", "ϲ": "c", "ϳ": "j",
    "օ": "o", "ս": "u", "հ": "h", "ց": "g", "զ": "q", "ո": "n", "ı": "i", "ɩ": "i", "ɑ": "a", "ᴀ": "a", "ʙ": "b",
    "ᴄ": "c", "ᴅ": "d", "ᴇ": "e", "ɢ": "g", "ʜ": "h", "ɪ": "i", "ᴊ": "j", "ᴋ": "k", "ʟ": "l", "ᴍ": "m", "ɴ": "n",
    "ᴏ": "o", "ᴘ": "p", "ʀ": "r", "ꜱ": "s", "ᴛ": "t", "ᴜ": "u", "ᴠ": "v", "ᴡ": "w", "ʏ": "y", "ᴢ": "z",
    "0": "o", "1": "l", "|": "l", "5": "s",
}  # fmt: skip
_TABLE = str.maketrans(_ALIKE)


def outline(name: str) -> str:
    """What is left of a name when all that is hard to tell apart is one."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold()).translate(_TABLE)
    return "".join(char for char in folded if char.isalnum())
