"""Settings: `config.toml` in SUB_HOME, the project's own, and `SUB_*` variables.

Order: flags > environment > project > user > default. The shim loads this before it spawns its server, so without a
file nothing is imported and nothing is parsed.

The project's file (`.subluminal/config.toml`, found from the working directory up to the repository's root) comes from
whoever wrote the repository. It may only make things stricter: more redaction patterns, a smaller preview, a shorter
timeout, `audit = "before"`, `results = "off"`. Anything else in it is left out with a warning, and a broken one never
stops a tool.
"""

from __future__ import annotations

import os
from stat import S_ISREG

from subluminal.contracts.errors import ConfigError
from subluminal.contracts.vocabulary import MAX_INSPECT_BYTES, MAX_PREVIEW_BYTES
from subluminal.host.home import REPOSITORY_CONFIG, config_file, keep_private, sub_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from subluminal.host.secrets.bindings import Binding

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
IDLE_EXIT_S = 900.0
HEALTH_MS = 300_000
AUDITS = ("after", "before")
REFUSAL_STYLES = ("error", "result")
RESULTS = ("off", "all")
# What is inspected is what can be kept: a larger result is never held.
MAX_RESULT_BYTES = MAX_INSPECT_BYTES
# Of one producer, deflated: a day of work with a chatty server, and not the user's disk.
MAX_RESULTS_BYTES = 64 * 1024 * 1024

# section -> key -> smallest and largest number, or the words allowed. 0 ms means "never".
_NUMBERS: dict[str, dict[str, tuple[int, int]]] = {
    "shim": {
        "max_inspect_bytes": (1024, 1 << 30),
        "max_preview_bytes": (0, 1 << 24),
        "max_message_bytes": (1 << 16, 1 << 40),
        "timeout_ms": (0, 1 << 40),
        "health_ms": (0, 1 << 40),
    },
    "servers": {"timeout_ms": (0, 1 << 40)},
    "record": {"max_result_bytes": (0, 1 << 30), "max_results_bytes": (0, 1 << 40)},
}
_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "shim": {"audit": AUDITS, "refusal_style": REFUSAL_STYLES},
    "servers": {"audit": AUDITS, "refusal_style": REFUSAL_STYLES},
    "record": {"results": RESULTS},
}
_SERVER_LISTS = ("secret_bindings", "confirmed", "env_allowlist", "record")
_SECTIONS = ("shim", "ledger", "redaction", "servers", "proxy", "record", "telemetry")


class ServerConfig:
    """What holds for one server: its own settings, and the general ones where it has none."""

    __slots__ = (
        "audit", "bindings_from_environ", "confirmed", "env_allowlist", "name", "refusal_style", "secret_bindings",
        "timeout_ms",
    )  # fmt: skip

    def __init__(self, name: str, audit: str, refusal_style: str, timeout_ms: int | None) -> None:
        self.name = name
        self.audit = audit
        self.refusal_style = refusal_style
        self.timeout_ms = timeout_ms
        self.secret_bindings: list[Binding] = []
        self.bindings_from_environ = False
        self.confirmed: list[dict[str, Any]] = []
        self.env_allowlist: tuple[str, ...] | None = None


class Config:
    """The settings in force. `warnings` are sentences for the user about what was left out."""

    __slots__ = (
        "_environ", "_from_environ", "_servers", "audit", "health_ms", "max_inspect_bytes", "max_message_bytes",
        "max_preview_bytes", "max_result_bytes", "max_results_bytes", "patterns", "proxy", "refusal_style", "results",
        "timeout_ms", "warnings",
    )  # fmt: skip

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.max_inspect_bytes = MAX_INSPECT_BYTES
        self.max_preview_bytes = MAX_PREVIEW_BYTES
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.timeout_ms: int | None = None
        self.health_ms = HEALTH_MS
        self.audit = "after"
        self.refusal_style = "error"
        self.results = "off"
        self.max_result_bytes = MAX_RESULT_BYTES
        self.max_results_bytes = MAX_RESULTS_BYTES
        self.patterns: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.proxy: tuple[dict[str, Any], str] = {}, ""
        self._environ = environ
        self._from_environ: set[str] = set()
        self._servers: dict[str, dict[str, Any]] = {}

    def server(self, name: str) -> ServerConfig:
        """Settings of one server; its bindings are those of SUB_SECRET_BINDINGS where that is set."""
        own = self._servers.get(name, {})
        server = ServerConfig(name, self.audit, self.refusal_style, self.timeout_ms)
        for key in ("audit", "refusal_style", "timeout_ms"):
            if key in own and key not in self._from_environ and not self._stricter(key, own[key]):
                setattr(server, key, own[key])
        server.env_allowlist = own.get("env_allowlist")
        server.secret_bindings = own.get("secret_bindings", [])
        server.confirmed = own.get("confirmed", [])
        if "SUB_SECRET_BINDINGS" in self._environ:
            from subluminal.host.secrets.bindings import bindings_from_environ

            from_environ = bindings_from_environ(self._environ, name)
            if from_environ is not None:
                server.secret_bindings = from_environ
                server.bindings_from_environ = True
        return server

    def keeps_results(self, name: str | None = None) -> bool:
        """Whether results of this server are kept, beside their previews; without a name: of any."""
        own = {} if "results" in self._from_environ else self._servers
        if name is None:
            return self.results == "all" or any(server.get("results") == "all" for server in own.values())
        return bool(own.get(name, {}).get("results", self.results) == "all")

    def server_names(self) -> list[str]:
        return list(self._servers)

    def other_bindings(self, name: str) -> list[Binding]:
        """The bindings of every server but this one: their secrets are not for its eyes."""
        return self.bindings(but=name)

    def bindings(self, but: str | None = None) -> list[Binding]:
        """Those of every server in `config.toml`."""
        return [b for server, own in self._servers.items() if server != but for b in own.get("secret_bindings", ())]

    def _stricter(self, key: str, value: object) -> bool:
        """A project's write-ahead audit is not undone by the user's settings for a server."""
        return key == "audit" and self.audit == "before" and value == "after"


def load_config(environ: Mapping[str, str], cwd: str | None = None, *, of_entry: bool = False) -> Config:
    """Raises `ConfigError` for the user's own file or environment; a project's faults become warnings.

    `of_entry`: the environment is of an entry of a client's configuration, which whoever wrote the file has chosen.
    """
    config = Config(environ)
    _check_home(sub_home(environ))
    path = config_file(sub_home(environ))
    user = _read(path)
    if user is not None:
        _apply_user(config, user, path)
        _check_permissions(config, path)
    project = project_path(cwd or _working_directory(), path)
    if project is not None:
        _apply_project(config, project)
    _apply_environ(config, environ, of_entry)
    return config


def idle_exit_s(environ: Mapping[str, str]) -> float:
    """Seconds without work after which ledgerd ends. A fault in another table does not keep it from its work."""
    name = "SUB_LEDGER_IDLE_S"
    if name in environ:
        try:
            return _seconds(float(environ[name]), name)
        except ValueError:
            return _seconds(environ[name], name)
    path = config_file(sub_home(environ))
    return _idle_exit_s((_read(path) or {}).get("ledger", {}), path)


def user_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """The user's own file as it stands, for who needs one table of it whatever is wrong with another."""
    return _read(config_file(sub_home(environ))) or {}


def project_path(cwd: str | None, user_path: str) -> str | None:
    """The nearest `.subluminal/config.toml`, not above the repository's root and not the user's own."""
    directory = cwd
    while directory:
        candidate = os.path.join(directory, REPOSITORY_CONFIG)
        if os.path.isfile(candidate):
            return None if os.path.realpath(candidate) == os.path.realpath(user_path) else candidate
        parent = os.path.dirname(directory)
        if parent == directory or os.path.exists(os.path.join(directory, ".git")):
            return None
        directory = parent
    return None


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


_MAX_FILE_BYTES = 4 << 20


def _read(path: str) -> dict[str, Any] | None:
    try:
        # Without O_NONBLOCK a FIFO in a repository would hold up every tool.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is not a regular file")
            data = file.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _apply_user(config: Config, document: dict[str, Any], path: str) -> None:
    for section, table in document.items():
        if section not in _SECTIONS:
            raise _unknown(path, section, _SECTIONS)
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: [{section}] must be a table")
        if section == "redaction":
            config.patterns += _patterns(table, path)
        elif section == "ledger":
            _idle_exit_s(table, path)
        elif section == "proxy":
            config.proxy = table, path  # read by `host.proxied`: a fault there keeps no shim from its work
        elif section == "telemetry":
            continue  # read by `fleet.telemetry.settings`, for the same reason
        elif section == "servers":
            for name, own in table.items():
                config._servers[name] = _server(own, f"{path}: [servers.{name}]")
        else:
            for key, value in table.items():
                setattr(config, key, _setting(section, key, value, f"{path}: [{section}]"))


def _server(table: Any, where: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table")
    own: dict[str, Any] = {}
    for key, value in table.items():
        if key == "secret_bindings":
            from subluminal.host.secrets.bindings import parse_bindings

            own[key] = parse_bindings(value, where)
        elif key == "confirmed":
            from subluminal.host.secrets.confirmation import parse_confirmed

            own[key] = parse_confirmed(value, where)
        elif key == "env_allowlist":
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise ConfigError(f"{where}: env_allowlist must be a list of names")
            own[key] = tuple(value)
        elif key == "record":
            if not isinstance(value, dict) or any(name != "results" for name in value):
                raise ConfigError(
                    f"{where}: record must be a table with `results`", hint='record = { results = "all" }'
                )
            own |= {name: _setting("record", name, word, where) for name, word in value.items()}
        else:
            own[key] = _setting("servers", key, value, where)
    return own


def _setting(section: str, key: str, value: Any, where: str) -> int | str:
    if key in _NUMBERS[section]:
        least, most = _NUMBERS[section][key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{where}: {key} must be a whole number from {least} to {most}, not {value!r}")
        return value
    if key in _WORDS[section]:
        words = _WORDS[section][key]
        if value not in words:
            raise ConfigError(f"{where}: {key} must be {' or '.join(map(repr, words))}, not {value!r}")
        return str(value)
    known = [*_NUMBERS[section], *_WORDS[section], *(_SERVER_LISTS if section == "servers" else ())]
    raise _unknown(where, key, known)


def _idle_exit_s(table: Any, where: str) -> float:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: [ledger] must be a table")
    for key in table:
        if key != "idle_exit_s":
            raise _unknown(f"{where}: [ledger]", key, ("idle_exit_s",))
    return _seconds(table.get("idle_exit_s", IDLE_EXIT_S), f"{where}: [ledger]: idle_exit_s")


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"{where} must be a number of seconds above 0, not {value!r}")
    return float(value)


def _patterns(table: dict[str, Any], where: str) -> list[tuple[str, str]]:
    for key in table:
        if key != "patterns":
            raise _unknown(f"{where}: [redaction]", key, ("patterns",))
    entries = table.get("patterns", [])
    hint = 'For example: patterns = [{ name = "badge", regex = "EMP-[0-9]{6}" }]'
    if not isinstance(entries, list):
        raise ConfigError(f"{where}: [redaction] patterns must be a list", hint=hint)
    patterns = []
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"name", "regex"}:
            raise ConfigError(f"{where}: each redaction pattern needs name and regex", hint=hint)
        if not isinstance(entry["name"], str) or not isinstance(entry["regex"], str):
            raise ConfigError(f"{where}: name and regex of a redaction pattern are text", hint=hint)
        from subluminal.core.redact.redactor import check_pattern

        patterns.append(check_pattern(entry["name"], entry["regex"]))
    return patterns


def _apply_project(config: Config, path: str) -> None:
    try:
        document = _read(path) or {}
        redaction = document.pop("redaction", {})
        if not isinstance(redaction, dict):
            raise ConfigError(f"{path}: [redaction] must be a table")
        config.patterns += _patterns(redaction, path)
    except ConfigError as error:
        config.warnings.append(f"{error}; the project's settings were left out")
        return
    tables = [(section, document.pop(section, {})) for section in ("shim", "record")]
    left_out = [f"[{section}]" for section in document]
    for section, key, value in [
        (section, *item) for section, table in tables if isinstance(table, dict) for item in table.items()
    ]:
        try:
            setting = _setting(section, key, value, path)
        except ConfigError as error:
            config.warnings.append(str(error))
            continue
        if _tightens(config, key, setting):
            setattr(config, key, setting)
            if key == "results":
                config._from_environ.add(key)  # the user's word for one server does not undo it either
        elif setting != getattr(config, key):
            left_out.append(key)
    if left_out:
        message = f"{path}: a project may only make settings stricter; left out: {', '.join(sorted(left_out))}"
        config.warnings.append(message)


def _tightens(config: Config, key: str, value: int | str) -> bool:
    if key == "audit":
        return value == "before"
    if key == "max_preview_bytes":
        return int(value) <= config.max_preview_bytes
    if key == "timeout_ms":
        return int(value) > 0 and (not config.timeout_ms or int(value) <= config.timeout_ms)
    return key == "results" and value == "off"


def _apply_environ(config: Config, environ: Mapping[str, str], of_entry: bool) -> None:
    """The shim's settings and whether results are kept; `idle_exit_s` has the daemon's own variable."""
    if text := environ.get("SUB_RECORD_RESULTS"):
        config.results = str(_setting("record", "results", text, "SUB_RECORD_RESULTS"))
        config._from_environ.add("results")
    for key in (*_NUMBERS["shim"], *_WORDS["shim"]):
        name = "SUB_" + key.upper()
        text = environ.get(name)
        if text:
            value: int | str = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
            setting = _setting("shim", key, value, name)
            if of_entry and key == "max_inspect_bytes" and _blinds(config, name, text, int(setting)):
                message = f"{name} of the server's entry was left out: a rule cannot judge what is not inspected"
                config.warnings.append(message)
                continue
            setattr(config, key, setting)
            config._from_environ.add(key)


def _blinds(config: Config, name: str, text: str, size: int) -> bool:
    """Whether an entry, and not the user, would have us look at less of a call than before."""
    if size >= config.max_inspect_bytes:
        return False
    from subluminal.host.identity import client_environment  # for few entries

    return client_environment().get(name) != text


def _check_home(directory: str) -> None:
    try:
        keep_private(directory)
    except PermissionError as error:
        raise ConfigError(f"{directory} {error.strerror}") from None
    except OSError:
        pass  # not there yet


def _check_permissions(config: Config, path: str) -> None:
    """Whoever can write this file decides which server gets which secret."""
    try:
        status = os.stat(path)
    except OSError:
        return
    if status.st_mode & 0o022:
        config.warnings.append(f"{path} can be changed by other users; run: chmod 600 {path}")
    if status.st_uid not in (0, os.geteuid()):
        hint = "It decides which server gets which secret. Look at it, and make it yours or remove it."
        raise ConfigError(f"{path} belongs to another user (uid {status.st_uid})", hint=hint)


def _unknown(where: str, key: str, known: tuple[str, ...] | list[str]) -> ConfigError:
    import difflib

    near = difflib.get_close_matches(key, known, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
    return ConfigError(f"{where} has an unknown key {key!r}", hint=hint)
