"""Masks secrets in everything that leaves the shim or lands on disk: previews, errors, hints, metadata, logs.

    Redactor(secrets, patterns).mask(data) -> (masked, flags)
    redactor.learn(token)                       those that did not exist before

Three searches: the injected values in any spelling (`spellings`), inside encoded rows (`decoded`), and shapes of
well-known credentials (`token_shapes`). Places found by them are united before anything is replaced, so no search can
hide a part from another. A mask names the kind of secret and never shows its length.

Hot path: ordinary arguments cost a handful of substring tests, and RE2 is imported where these and `prefilter` both
suspect something, or for the first text above `SMALL`, where one RE2 pass is cheaper than the tests. With the C part
texts of any length are asked of that alone, and RE2 sees only what may hold a credential.
"""

from __future__ import annotations

from _thread import allocate_lock

from subluminal.contracts.errors import ConfigError
from subluminal.core.redact.spellings import MIN_SECRET_BYTES, Form, compile_pattern, forms_of, hex_anchors
from subluminal.native.chosen import core

# `typing` imports `re`, which the shim must not pay for.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from subluminal.core.redact.decoded import Decoder

SMALL = 1024
# Above this many anchors one RE2 pass is cheaper than looking for each.
MANY = 40
INJECTED = "injected_secret"
# Refusing a doubtful match means reading its text again. Text made to be read again and again is masked instead.
REREAD = 3
# Renewed tokens: a run of a week with a token an hour has 168, but a server knows no more than the last few. Each comes
# with the secrets of its login, and a proxy has several servers.
MAX_LEARNED = 16
# Enough text after a preview's edge to recognise any value that begins before it: HEAD units of an escaped form, or
# the shortest length at which each token shape is certain.
MARGIN = 512

Span = tuple[int, int, str]


class Redactor:
    """Changed by `learn` alone, in any thread while others mask; patterns are compiled when first needed."""

    __slots__ = (
        "_anchors", "_custom", "_custom_sources", "_decoder", "_escapable", "_forms", "_gate", "_given", "_hex",
        "_hex_words", "_learned", "_learning", "_words", "only_shapes", "refused",
    )  # fmt: skip

    def __init__(self, secrets: Iterable[str | bytes] = (), patterns: Iterable[tuple[str, str]] = ()) -> None:
        values = [_as_bytes(secret) if isinstance(secret, str) else bytes(secret) for secret in secrets]
        self._given = [value for value in values if len(value) >= MIN_SECRET_BYTES]
        # How many values were too short to be found safely; whoever injects them must say so.
        self.refused = len(values) - len(self._given)
        self._learned: list[bytes] = []
        self._learning = allocate_lock()
        self._gate: tuple[object, Any] = (None, None)  # the anchors that it was made of, and the pattern
        self._custom_sources = [check_pattern(name, regex) for name, regex in patterns]
        self.only_shapes = False  # it looks for shapes of credentials, and for nothing else
        self._look_for(self._given)
        self._custom: list[tuple[str, Any]] | None = None

    def learn(self, *secrets: str) -> None:
        """These too, from now on: tokens are renewed. Of many only the last `MAX_LEARNED` are looked for."""
        with self._learning:
            told = [value for value in dict.fromkeys(map(_as_bytes, secrets)) if len(value) >= MIN_SECRET_BYTES]
            told = [value for value in told if value not in self._given]
            is_new = any(value not in self._learned for value in told)
            # What is told again is in use still, and is not the next to be forgotten.
            earlier = [value for value in self._learned if value not in told]
            self._learned = [*earlier, *told][-MAX_LEARNED:]
            if is_new:
                self._look_for([*self._given, *self._learned])

    def mask(self, data: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The masked bytes, and the sorted kinds of what was masked."""
        if self._ordinary(data):
            return data, ()
        return _replace(data, self._spans(data))

    def mask_text(self, text: str) -> str:
        encoded = text.encode("utf-8", "surrogatepass")
        masked, flags = self.mask(encoded)
        return masked.decode("utf-8", "surrogatepass") if flags else text

    def mask_window(self, data: bytes) -> tuple[bytes, tuple[str, ...]]:
        """As `mask`, for text that goes on after `data`: its end may be the beginning of a secret."""
        spans = [] if self._ordinary(data) else self._spans(data)
        for form in self._forms:
            edge = form.find_at_edge(data)
            if edge is not None:
                spans.append((*edge, INJECTED))
        return _replace(data, spans)

    def _ordinary(self, data: bytes) -> bool:
        """True for most texts: nothing in them can be a secret."""
        if self._custom_sources or (self._decoder is not None and self._decoder.suspects(data)):
            return False
        if not self._forms:
            return _has_no_shape(data)
        if len(data) > SMALL or len(self._anchors) > MANY:
            of, gate = self._gate
            if of is not self._anchors:
                of, gate = self._gate = self._compile_gate()
            return gate.search(data) is None
        # Latin-1 text, because `in` is four times as fast for str as for bytes.
        text = data.decode("latin-1")
        lowered = text.lower()
        for anchor in self._words:
            if anchor in text:
                return False
        for anchor in self._hex_words:
            if anchor in lowered:
                return False
        return not _may_hide_letters(text, lowered) and _has_no_shape(data)

    def _look_for(self, values: list[bytes]) -> None:
        """Lists are replaced, never changed: another thread may be in the middle of one."""
        spelled = [(value, forms_of(value)) for value in values]
        forms = [form for _, own in spelled for form in own]
        anchors = [(anchor.decode("latin-1"), form) for form in forms for anchor in form.anchors]
        hexes = [(anchor.decode("latin-1"), own[-1]) for value, own in spelled for anchor in hex_anchors(value)]
        decoder: Decoder | None = None
        if forms:
            from subluminal.core.redact.decoded import Decoder

            decoder = Decoder(values)
        self.only_shapes = not forms and not self._custom_sources
        self._decoder = decoder
        self._forms: list[Form] = forms
        self._escapable: list[Form] = [form for form in forms if form.escapable]
        self._anchors: list[tuple[str, Form]] = anchors
        self._hex: list[tuple[str, Form]] = hexes
        self._words = tuple(anchor for anchor, _ in anchors)
        self._hex_words = tuple(anchor for anchor, _ in hexes)

    def _suspects(self, data: bytes) -> Iterable[Form]:
        text = data.decode("latin-1")
        lowered = text.lower()
        found = [form for anchor, form in self._anchors if anchor in text]
        found += [form for anchor, form in self._hex if anchor in lowered]
        if _may_hide_letters(text, lowered):
            found += self._escapable
        return sorted(dict.fromkeys(found), key=lambda form: form.is_line)

    def _compile_gate(self) -> tuple[object, Any]:
        anchors = self._anchors
        from subluminal.core.redact.token_shapes import PATTERN

        gates = [PATTERN, _HIDING, *(anchor.encode("latin-1") for anchor, _ in anchors)]
        gates += [b"(?i:" + anchor.encode("latin-1") + b")" for anchor, _ in self._hex]
        return anchors, compile_pattern(b"|".join(gates))

    def _spans(self, data: bytes) -> list[Span]:
        spans: list[Span] = []
        rest = data
        for form in self._suspects(data) if self._forms else ():
            # The lines of a value that was found whole need no search of their own.
            if form.is_line and not any(anchor in rest for anchor in form.anchors):
                continue
            for start, end in form.find(data):
                spans.append((start, end, INJECTED))
                rest = rest[:start] + bytes(end - start) + rest[end:]
        if self._decoder is not None:
            spans += [(start, end, INJECTED) for start, end in self._decoder.find(rest)]
        spans += self._shape_spans(data)
        for name, pattern in self._compiled_custom():
            spans += [(m.start(), m.end(), name) for m in pattern.finditer(data) if m.end() > m.start()]
        return spans

    def _shape_spans(self, data: bytes) -> list[Span]:
        from subluminal.core.redact.token_shapes import FLAGS, TESTS, plausible

        search = _shapes().search
        spans: list[Span] = []
        position = 0
        patience = REREAD * len(data)
        while (match := search(data, position)) is not None:
            index = match.lastindex - 1
            start, end = match.span(index + 1)
            test = TESTS[index]
            if not test or patience < 0 or plausible(test, data[max(0, start - 80) : start], data[start:end]):
                spans.append((start, end, FLAGS[index]))
                position = end
            else:
                # What was refused as a value may hold, or be the key of, the next one.
                position = start
                patience -= match.end() - match.start()
        return spans

    def _compiled_custom(self) -> list[tuple[str, Any]]:
        if self._custom is None:
            self._custom = [(name, _compile_utf8(regex)) for name, regex in self._custom_sources]
        return self._custom


_compiled_shapes: Any = None


def _shapes() -> Any:
    """The known shapes are the same for every redactor, and costly to compile."""
    global _compiled_shapes
    if _compiled_shapes is None:
        from subluminal.core.redact.token_shapes import PATTERN

        _compiled_shapes = compile_pattern(PATTERN)
    return _compiled_shapes


_may_hold_credential = None if core is None else core.may_hold_credential


def _has_no_shape(data: bytes) -> bool:
    """Whether no shape of a credential can be in it."""
    if _may_hold_credential is not None:
        return not _may_hold_credential(data)
    if len(data) > SMALL:
        return _shapes().search(data) is None
    text = data.decode("latin-1")
    lowered = text.lower()
    if not _suspicious_word(text, lowered) and not _begins_like_a_token(text, lowered):
        return True
    if _compiled_shapes is not None:
        return _compiled_shapes.search(data) is None
    from subluminal.core.redact.prefilter import may_hold_credential

    return not may_hold_credential(data)  # no reason to import RE2 for `max_tokens`


def _as_bytes(secret: str) -> bytes:
    """An environment variable that is not UTF-8 reaches Python as surrogates that stand for its bytes."""
    try:
        return secret.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return secret.encode("utf-8", "surrogatepass")


def check_pattern(name: str, regex: str) -> tuple[str, str]:
    """A user's own pattern, refused with a sentence when it cannot be used."""
    if not name or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
        hint = "Use letters, digits, `_` and `-`: the name is shown in place of what it masks."
        raise ConfigError(f"redaction pattern name {name!r} is not usable", hint=hint)
    try:
        pattern = _compile_utf8(regex)
    except Exception as error:
        message = f"redaction pattern {name!r} is not a valid regular expression: {error}"
        raise ConfigError(message, hint="Patterns are RE2: no backreferences, no lookahead or lookbehind.") from None
    if pattern.fullmatch(b"") is not None:
        message = f"redaction pattern {name!r} matches empty text, so it would match everywhere"
        raise ConfigError(message, hint="Let it require at least one character, for example `+` in place of `*`.")
    return name, regex


def _compile_utf8(regex: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex.encode("utf-8"), options)


# Escapes under which a letter or digit could hide, and the zero bytes of UTF-16 between them: no anchor would be seen.
_HIDING = rb"%|&#|\x00|\\[uUxX0]"


def _may_hide_letters(text: str, lowered: str) -> bool:
    if "%" in text or "&#" in text or "\0" in text:
        return True
    return "\\" in text and ("\\u" in lowered or "\\x" in lowered or "\\0" in text)


def _suspicious_word(text: str, lowered: str) -> bool:
    """Whether one of the words that the keyed shapes need is there. `keyword` and `pass` are ordinary.

    A single letter is found five times as fast as a word, so the rare letters of the words are looked for first.
    """
    return (
        ("p" in lowered and _suspicious_with_p(lowered))
        or ("cre" in lowered and ("secret" in lowered or "credential" in lowered))
        or ("k" in lowered and ("token" in lowered or ("key" in lowered and _key_of_something(lowered))))
        or ("z" in lowered and "authoriz" in lowered)
        or ("-" in text and "-----B" in text)
        or ("@" in text and ":" in text)
    )


def _suspicious_with_p(lowered: str) -> bool:
    return (
        ("pass" in lowered and ("passw" in lowered or "passp" in lowered or "passc" in lowered))
        or ("w" in lowered and "pwd" in lowered)
        or ("pin" in lowered and ('pin"' in lowered or "pin\\" in lowered))
    )


def _key_of_something(lowered: str) -> bool:
    owners = ("api", "access", "private", "account", "encryption", "signing", "auth", "master")
    return any(owner in lowered for owner in owners)


def _begins_like_a_token(text: str, lowered: str) -> bool:
    """Whether one of the known beginnings is there."""
    return (
        ("_" in text and any(word in text for word in _WITH_UNDERSCORE))
        or ("-" in text and any(word in text for word in _WITH_HYPHEN))
        or ("." in text and ("ya29." in text or "SG." in text or "hooks.slack" in text))
        or ("I" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text))
        or ("J" in text and "eyJ" in text)
        or ("=" in text and "sig=" in text)
        or "bearer" in lowered
    )


_WITH_UNDERSCORE = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "k_live_", "k_test_", "whsec_", "npm_", "hf_", "_v1_",
)  # fmt: skip
_WITH_HYPHEN = ("GOCSPX-", "gl", "xox", "xapp-", "sk-", "pypi-")


def _replace(data: bytes, spans: list[Span]) -> tuple[bytes, tuple[str, ...]]:
    if not spans:
        return data, ()
    spans.sort()
    parts: list[bytes] = []
    flags = set()
    done = 0
    start, end, name = spans[0]
    for following in [*spans[1:], (len(data) + 1, len(data) + 1, "")]:
        if following[0] < end:
            end = max(end, following[1])
            name = INJECTED if INJECTED in (name, following[2]) else name
            continue
        parts += [data[done:start], b"[REDACTED:%b]" % name.encode()]
        flags.add(name)
        done = end
        start, end, name = following
    parts.append(data[done:])
    return b"".join(parts), tuple(sorted(flags))
