r"""What credentials look like when nobody told us their value: known token shapes and password-like keys.

One RE2 alternation. Every alternative has exactly one capturing group: the part to mask (a key's name stays readable).
Alternatives that would also match ordinary code or prose are marked doubtful and pass `plausible` before they count.

Text in previews is JSON, and often JSON inside JSON: `\"password\":\"x\"`. A string's end is the quote with as many
backslashes as its beginning, which RE2 cannot remember, so three depths are spelled out.
"""

from __future__ import annotations

_KEY = (
    rb"(?:pass(?:word|wd|phrase|code)|pwd|secret|credentials?"
    rb"|(?:api|access|private|account|encryption|signing|auth|master|secret|shared[_-]?access)[_-]?key"
    rb"|token|authorization)"
)
_NAME = rb"[A-Za-z0-9_.-]{0,40}"
_ENV_KEY = (
    rb"(?:PASSWORD|PASSWD|PASSPHRASE|_PWD|SECRET|TOKEN|CREDENTIALS?"
    rb"|(?:API|ACCESS|PRIVATE|ACCOUNT|SECRET|AUTH)_?KEY(?:_ID)?)"
)
_TOKEN = rb"[A-Za-z0-9_-]"

# flag, pattern, doubtful
_SHAPES: list[tuple[str, bytes, bool]] = [
    (
        "private_key",
        rb"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.%&;#()_-]{20,})",
        False,
    ),
    ("aws_key", rb"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b", False),
    ("gcp_key", rb"\b(AIza%b{35,}|ya29\.%b{20,}|GOCSPX-%b{20,})" % (_TOKEN, _TOKEN, _TOKEN), False),
    ("github_token", rb"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})", False),
    ("gitlab_token", rb"\b(gl(?:pat|dt|rt|rtr|soat|cbt|ptt|ft|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{20,})", False),
    ("slack_token", rb"\b(xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,})", False),
    ("slack_webhook", rb"hooks\.slack\.com\\*/(?:services|workflows|triggers)\\*/([A-Za-z0-9+/\\_-]{20,})", False),
    ("anthropic_key", rb"\b(sk-ant-%b{20,})" % _TOKEN, False),
    ("openai_key", rb"\b(sk-(?:proj-|svcacct-|admin-)?%b{20,})" % _TOKEN, True),
    ("stripe_key", rb"\b([sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})", False),
    ("npm_token", rb"\b(npm_[A-Za-z0-9]{36,})", False),
    ("pypi_token", rb"\b(pypi-%b{40,})" % _TOKEN, False),
    ("huggingface_token", rb"\b(hf_[A-Za-z0-9]{30,})", False),
    ("sendgrid_key", rb"\b(SG\.%b{16,}\.%b{16,})" % (_TOKEN, _TOKEN), False),
    ("digitalocean_token", rb"\b(do[opr]_v1_[a-f0-9]{40,})", False),
    ("jwt", rb"\b(eyJ%b{10,}(?:\.eyJ%b*(?:\.%b*)?|\z))" % (_TOKEN, _TOKEN, _TOKEN), False),
    ("azure_key", rb"\b(?:Account|SharedAccess)Key=([A-Za-z0-9+/%%]{20,}=*)", False),
    ("azure_sas", rb"[?&;](?:\\u0026)?sig=([A-Za-z0-9%%+/_-]{20,}=*)", False),
    (
        "url_credentials",
        rb"\b[A-Za-z][A-Za-z0-9+.-]{0,20}:(?:\\*/){2}[^\s/?#@:\"'<>\\]{0,128}:([^\s/?#@\"'<>]{1,256})@",
        True,
    ),
    ("url_credentials", rb"\bhttps?:(?:\\*/){2}([A-Za-z0-9_-]{20,256})@", False),
    ("basic_auth", rb"(?i:\bauthorization)[^A-Za-z0-9]{1,8}(?i:basic)\s+([A-Za-z0-9+/_-]{4,}={0,2})", True),
    ("bearer_token", rb"(?i:\bbearer)(?:\s|%%20|\+){1,4}([A-Za-z0-9._~+/-]{12,}=*)", True),
    # "key": "value", with the quotes escaped zero times, once and twice
    ("password", rb"(?i)\"%b%b\d{0,2}\"\s{0,8}:\s{0,8}\"((?:[^\"\\]|\\[\s\S])+)" % (_NAME, _KEY), True),
    (
        "password",
        rb"(?i)\\\"%b%b\d{0,2}\\\"\s{0,8}:\s{0,8}\\\"((?:[^\"\\]|\\\\\\[\s\S]|\\{1,2}[^\"\\])+)" % (_NAME, _KEY),
        True,
    ),
    (
        "password",
        rb"(?i)\\{3,7}\"%b%b\d{0,2}\\{3,7}\"\s{0,8}:\s{0,8}\\{3,7}\"((?:[^\"\\]|\\{1,7}[^\"\\]|\\{8,}[\s\S])+)"
        % (_NAME, _KEY),
        True,
    ),
    ("password", rb"(?i)\\*\"%b(?:pass(?:word|wd|code)|pwd|pin)\\*\"\s{0,8}:\s{0,8}(\d{4,64})" % _NAME, False),
    ("password", rb"(?i)'%b%b\d{0,2}'\s{0,8}:\s{0,8}b?'((?:[^'\\]|\\[\s\S])+)" % (_NAME, _KEY), True),
    # ?key=value&
    ("password", rb"(?i)(?:^|[?&;]|u0026|\\*[\"'])%b%b\d{0,2}=([^&;\s\"'<>\\#]+)" % (_NAME, _KEY), True),
    # KEY=value in environments and shell lines
    ("password", rb"\b[A-Z0-9_]{0,40}%b=\\*[\"']([^\"'\\\r\n]+)" % _ENV_KEY, True),
    ("password", rb"\b[A-Z0-9_]{0,40}%b=([^\s\"'\\;&|<>(){}$][^\s\"'\\;&|<>(){}]{3,})" % _ENV_KEY, True),
    # key = "value" in code and settings; key: value alone on its line; --key value
    ("password", rb"(?i)\b%b%b\s{0,8}(?:=|:|:=|=>)\s{0,8}\\*[\"']([^\"'\\\s]{6,512})" % (_NAME, _KEY), True),
    ("password", rb"(?i)\b%b%b\s{0,8}[:=]\s{0,8}([^\s\"'\\(){}\[\],;<>]{8,512})(?:[\s\"'\\]|\z)" % (_NAME, _KEY), True),
    (
        "password",
        rb"(?i)(?:^|\s|\")--%b%b(?:=|\s{1,4}|\",\s?\")\\*[\"']?([^\s\"'\\-][^\s\"'\\]{3,511})" % (_NAME, _KEY),
        True,
    ),
]
FLAGS: tuple[str, ...] = tuple(flag for flag, _, _ in _SHAPES)
DOUBTFUL: tuple[bool, ...] = tuple(doubtful for _, _, doubtful in _SHAPES)
PATTERN = b"|".join(b"(?:" + pattern + b")" for _, pattern, _ in _SHAPES)

_PLACEHOLDERS = frozenset(
    b"none null nil true false undefined string required optional changeme "
    b"secret password passwd token user example redacted".split()
)
_NOT_A_CREDENTIAL = (b"pagetoken", b"nexttoken", b"continuationtoken", b"synctoken", b"pagingtoken", b"cursortoken")


def plausible(flag: str, whole: bytes, value: bytes) -> bool:
    """Whether a doubtful match is a credential, judged by its key (the start of `whole`) and its value."""
    if flag in ("openai_key", "bearer_token", "basic_auth"):
        return _mixed(value) or (flag == "basic_auth" and value.endswith(b"="))
    if _is_placeholder(value):
        return False
    if flag == "url_credentials":
        return True
    key, separator, quoted = _split_key(whole, value)
    if key.endswith(_NOT_A_CREDENTIAL) or key in (b"PWD", b"OLDPWD"):
        return False
    if separator == b"json":
        return True
    if separator == b"query" or key.isupper():
        return len(value) >= 4 or _mixed(value)
    return _looks_random(value, key) if quoted else _mixed(value)


def _split_key(whole: bytes, value: bytes) -> tuple[bytes, bytes, bool]:
    before = whole[: whole.rfind(value)]
    stripped = before.rstrip(b" \t\r\n\\\"'b")
    quoted = before[-1:] in (b'"', b"'")
    key = stripped.rstrip(b":=> \t\r\n").rstrip(b"\\\"'")
    lead = whole[:1]
    if lead in (b'"', b"'", b"\\") and stripped.endswith(b":"):
        kind = b"json"
    elif lead in (b"?", b"&", b";", b"u", b'"', b"'", b"\\") or (
        not quoted and whole.lstrip()[:2] == b"--" and b"=" in before
    ):
        kind = b"query"
    else:
        kind = b""
    return key.replace(b"_", b"").replace(b"-", b"").lstrip(b"\\\"'?&;") if kind else key.strip(), kind, quoted


def _is_placeholder(value: bytes) -> bool:
    """`${TOKEN}`, `<password>`, `{{ secret }}`, `%s`, `***`, `xxxx`, `[REDACTED…]`: names of values, not values."""
    bare = value.strip(b"\\").rstrip(b",;")
    if bare.lower() in _PLACEHOLDERS or bare.startswith((b"[REDACTED", b"<", b"{", b"${", b"$(", b"%(", b"$env:")):
        return True
    if bare[:1] == b"$" and bare[1:].replace(b"_", b"").isupper():
        return True
    return (len(set(bare)) == 1 and bare[:1] in b"*x.-X_") or bare in (b"%s", b"%r", b"...")


def _mixed(value: bytes) -> bool:
    """Letters and digits together: words of prose and most identifiers have none."""
    has_digit = any(0x30 <= byte <= 0x39 for byte in value)
    return has_digit and any(byte | 0x20 in b"abcdefghijklmnopqrstuvwxyz" for byte in value)


def _looks_random(value: bytes, key: bytes) -> bool:
    if key.lower().endswith(b"token"):
        return len(value) >= 12 and _mixed(value)
    return not (value.isalpha() and (value.islower() or value.istitle())) or len(value) >= 20
