"""The one error tree. Each class carries the exit code of the command that meets it and what to do next.

SubluminalError                 2
├── UsageError                  2   the command line was wrong
├── ConfigError                 2   config.toml, an environment variable or a client's file
├── CanonicalError              2   bytes that are not one unambiguous JSON value
├── PolicyError                 1   a bundle with findings; the command did its job
├── LedgerError                 2   the ledger cannot be read, written or reached
├── VerificationError           1   the record was changed
├── SecretError                 2   a secret is missing or a store cannot be used
├── LoginError                  2   a login at a remote server is missing, refused or no longer good
│   └── LoginUnreachable        2   nobody could be asked; what is stored stays as it is
├── ToolsError                  2   a lock of tools cannot be read, or nothing may be approved from here
├── ClientConfigError           2   an agent client's configuration cannot be changed safely
├── AgentError                  2   an agent back end cannot be run
└── FleetError                  2   a fleet cannot be reached, believed, joined or published to
"""

from __future__ import annotations


class SubluminalError(Exception):
    """What went wrong, where, and (in `hint`) what to do next. Never carries a secret."""

    exit_code = 2
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class UsageError(SubluminalError):
    hint = "Run the command with --help to see its options."


class ConfigError(SubluminalError):
    pass


class CanonicalError(SubluminalError):
    """`kind` is a stable word for programs: see `canonical.py`."""

    def __init__(self, message: str, *, kind: str = "invalid", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class PolicyError(SubluminalError):
    exit_code = 1


class LedgerError(SubluminalError):
    hint = "Run `sub doctor` to see the state of the ledger."


class VerificationError(SubluminalError):
    exit_code = 1


class SecretError(SubluminalError):
    pass


class LoginError(SubluminalError):
    pass


class LoginUnreachable(LoginError):
    hint = "Nothing was changed. Try again when the network or the server is back."


class ToolsError(SubluminalError):
    pass


class ClientConfigError(SubluminalError):
    pass


class AgentError(SubluminalError):
    pass


class FleetError(SubluminalError):
    pass
