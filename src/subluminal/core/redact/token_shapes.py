r"""What credentials look like when nobody told us their value: known token shapes and password-like keys.

One RE2 alternation. Every alternative has exactly one capturing group: the part to mask (a key's name stays readable).
Alternatives that would also match ordinary code or prose name a test, and count only if `plausible` agrees.

Text in previews is JSON, and often JSON inside JSON: `\"password\":\"x\"`. A string's end is the quote with as many
backslashes as its beginning, which RE2 cannot remember, so three depths are spelled out.
"""

from __future__ import annotations

_KEY = (
    rb"(?:pass(?:word|wd|phrase|code)|pwd|secret|credentials?"
    rb"|(?:api|access|private|account|encryption|signing|auth|master|secret|shared[_-]?access)[_-]?key"
    rb"|token|authorization)"
)
_NAME = rb"[A-Za-z0-9_.-]*"
_ENV_KEY = (
    rb"(?:PASSWORD|PASSWD|PASSPHRASE|_PWD|SECRET|TOKEN|CREDENTIALS?"
    rb"|(?:API|ACCESS|PRIVATE|ACCOUNT|SECRET|AUTH)_?KEY(?:_ID)?)"
)
_TOKEN = rb"[A-Za-z0-9_-]"

# How much a match must prove before it counts: nothing, or what `_TESTS` says under this word.
_SHAPES: list[tuple[str, bytes, str]] = [
    ("private_key", rb"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.%&;#()_-]{20,})", ""),
    ("aws_key", rb"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b", ""),
    ("gcp_key", rb"\b(AIza%b{35,}|ya29\.%b{20,}|GOCSPX-%b{20,})" % (_TOKEN, _TOKEN, _TOKEN), ""),
    ("github_token", rb"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})", ""),
    ("gitlab_token", rb"\b(gl(?:pat|dt|rt|rtr|soat|cbt|ptt|ft|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{20,})", ""),
    ("slack_token", rb"\b(xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,})", ""),
    ("slack_webhook", rb"hooks\.slack\.com\\*/(?:services|workflows|triggers)\\*/([A-Za-z0-9+/\\_-]{20,})", ""),
    ("anthropic_key", rb"\b(sk-ant-%b{20,})" % _TOKEN, ""),
    ("openai_key", rb"\b(sk-(?:proj-|svcacct-|admin-)?%b{20,})" % _TOKEN, "mixed"),
    ("stripe_key", rb"\b([sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})", ""),
    ("npm_token", rb"\b(npm_[A-Za-z0-9]{36,})", ""),
    ("pypi_token", rb"\b(pypi-%b{40,})" % _TOKEN, ""),
    ("huggingface_token", rb"\b(hf_[A-Za-z0-9]{30,})", ""),
    ("sendgrid_key", rb"\b(SG\.%b{16,}\.%b{16,})" % (_TOKEN, _TOKEN), ""),
    ("digitalocean_token", rb"\b(do[opr]_v1_[a-f0-9]{40,})", ""),
    ("jwt", rb"\b(eyJ%b{10,}(?:\.eyJ%b*(?:\.%b*)?|\z))" % (_TOKEN, _TOKEN, _TOKEN), ""),
    ("azure_key", rb"\b(?:Account|SharedAccess)Key=([A-Za-z0-9+/%%]{20,}=*)", ""),
    ("azure_sas", rb"[?&;](?:\\u0026)?sig=([A-Za-z0-9%%+/_-]{20,}=*)", ""),
    ("url_credentials", rb"\b[A-Za-z][A-Za-z0-9+.-]*:(?:\\*/){2}[^\s/?#@:\"'<>\\]*:([^\s/?#@\"'<>]+)@", "value"),
    ("url_credentials", rb"\bhttps?:(?:\\*/){2}([A-Za-z0-9_-]{20,})@", ""),
    ("basic_auth", rb"(?i:\bauthorization)[^A-Za-z0-9]{1,8}(?i:basic)\s+([A-Za-z0-9+/_-]{4,}={0,2})", "base64"),
    ("bearer_token", rb"(?i:\bbearer)(?:\s|%%20|\+){1,4}([A-Za-z0-9._~+/-]{12,}=*)", "mixed"),
    # "key": "value", with the quotes escaped zero times, once and twice
    ("password", rb"(?i)\"%b%b\d*\"\s*:\s*\"((?:[^\"\\]|\\[\s\S])+)" % (_NAME, _KEY), "keyed"),
    ("password", rb"(?i)\\\"%b%b\d*\\\"\s*:\s*\\\"((?:[^\"\\]|\\\\\\[\s\S]|\\{1,2}[^\"\\])+)" % (_NAME, _KEY), "keyed"),
    (
        "password",
        rb"(?i)\\{3,7}\"%b%b\d*\\{3,7}\"\s*:\s*\\{3,7}\"((?:[^\"\\]|\\{1,7}[^\"\\]|\\{8,}[\s\S])+)" % (_NAME, _KEY),
        "keyed",
    ),
    ("password", rb"(?i)\\*\"%b(?:pass(?:word|wd|code)|pwd|pin)\\*\"\s*:\s*(\d{4,})" % _NAME, ""),
    ("password", rb"(?i)'%b%b\d*'\s*:\s*b?'((?:[^'\\]|\\[\s\S])+)" % (_NAME, _KEY), "keyed"),
    # ?key=value&
    ("password", rb"(?i)(?:^|[?&;]|u0026|\\*[\"'])%b%b\d*=([^&;\s\"'<>\\#]+)" % (_NAME, _KEY), "long"),
    # KEY=value in environments and shell lines
    ("password", rb"\b[A-Z0-9_]*%b=\\*[\"']([^\"'\\\r\n]+)" % _ENV_KEY, "long"),
    ("password", rb"\b[A-Z0-9_]*%b=([^\s\"'\\;&|<>(){}$][^\s\"'\\;&|<>(){}]{3,})" % _ENV_KEY, "long"),
    # key = "value" in code and settings; key: value alone on its line; --key=value and --key value
    ("password", rb"(?i)\b%b%b\s*(?:=|:|:=|=>)\s*\\*[\"']([^\"'\\\s]{6,})" % (_NAME, _KEY), "random"),
    ("password", rb"(?i)\b%b%b\s*[:=]\s*([^\s\"'\\(){}\[\],;<>]{8,})(?:[\s\"'\\]|\z)" % (_NAME, _KEY), "assigned"),
    ("password", rb"(?i)(?:^|\s|\")--%b%b=\\*[\"']?([^\s\"'\\]{4,})" % (_NAME, _KEY), "long"),
    (
        "password",
        rb"(?i)(?:^|\s|\")--%b%b(?:\s{1,4}|\",\s?\")\\*[\"']?([^\s\"'\\-][^\s\"'\\]{3,})" % (_NAME, _KEY),
        "assigned",
    ),
]
FLAGS: tuple[str, ...] = tuple(flag for flag, _, _ in _SHAPES)
TESTS: tuple[str, ...] = tuple(test for _, _, test in _SHAPES)
PATTERN = b"|".join(b"(?:" + pattern + b")" for _, pattern, _ in _SHAPES)

_PLACEHOLDERS = frozenset(
    b"none null nil true false undefined string required optional changeme "
    b"secret password passwd token user example redacted".split()
)
LONGEST_JUDGED = 512
# Tokens that mark a place in a list, and the shell's working directory.
_NOT_A_CREDENTIAL = (b"pagetoken", b"nexttoken", b"continuationtoken", b"synctoken", b"pagingtoken", b"cursortoken")
_DIRECTORIES = (b"pwd", b"oldpwd")


def plausible(test: str, before: bytes, value: bytes) -> bool:
    """Whether a match that also fits ordinary text is a credential. `before` ends with the key, where there is one."""
    value = value[:LONGEST_JUDGED]
    if test == "mixed":
        return _mixed(value)
    if test == "base64":
        return _mixed(value) or value.endswith(b"=")
    if _is_placeholder(value):
        return False
    if test == "value":
        return True
    key = _key_of(before)
    if key.endswith(_NOT_A_CREDENTIAL) or key in _DIRECTORIES:
        return False
    if test == "keyed":
        return True
    if test == "long":
        return len(value) >= 4 or _mixed(value)
    return _looks_random(value, key) if test == "random" else _mixed(value)


def _key_of(before: bytes) -> bytes:
    """The key without its separators, in lower case: `nextPageToken` and `next_page_token` alike."""
    words = before.rstrip(b" \t\r\n\\\"':=>").rpartition(b'"')[2].split()
    return words[-1].lstrip(b"\\\"'?&;-").replace(b"_", b"").replace(b"-", b"").lower() if words else b""


def _is_placeholder(value: bytes) -> bool:
    """`${TOKEN}`, `<password>`, `{{ secret }}`, `%s`, `***`, `xxxx`, `[REDACTED…]`: names of values, not values."""
    bare = value.strip(b"\\").rstrip(b",;")
    if bare.lower() in _PLACEHOLDERS or bare.startswith((b"[REDACTED", b"<", b"{", b"${", b"$(", b"%(", b"$env:")):
        return True
    if bare[:1] == b"$" and bare[1:].replace(b"_", b"").isupper():
        return True
    return bare in (b"%s", b"%r", b"...") or (len(set(bare)) == 1 and bare[:1] in b"*x.-X_")


def _mixed(value: bytes) -> bool:
    """Letters and digits together: words of prose and most identifiers have none."""
    has_digit = any(0x30 <= byte <= 0x39 for byte in value)
    return has_digit and any(byte | 0x20 in b"abcdefghijklmnopqrstuvwxyz" for byte in value)


def _looks_random(value: bytes, key: bytes) -> bool:
    if key.endswith(b"token"):
        return len(value) >= 12 and _mixed(value)
    return not (value.isalpha() and (value.islower() or value.istitle())) or len(value) >= 20
