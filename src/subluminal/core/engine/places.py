"""Where paths start and lead: what `path_within` needs to know of the machine. The core does no I/O of its own."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Places(Protocol):
        """Passed in by whoever builds an `Engine`. Absolute POSIX paths throughout."""

        # What this judgement has found out about values. The engine empties it at the start of each: links change.
        # Under None, what the places themselves remember for as long.
        seen: dict[str | None, Any]

        @property
        def home(self) -> str:
            """What `~` is in a policy."""

        @property
        def root(self) -> str:
            """Where relative entries of a policy start: the run's repository root, else its first directory."""

        @property
        def starts(self) -> tuple[str, ...]:
            """Where the server's own relative paths may start, without links: its working directory is the first."""

        @property
        def homes(self) -> tuple[str, ...]:
            """What the server may take `~` for."""

        def home_of(self, user: str) -> str | None:
            """What the server may take `~user` for."""

        def variable(self, name: str) -> str | None:
            """What the server may take `$name` for."""

        def real(self, base: str, path: str) -> str:
            """Where a path leads from a real directory: links resolved, `..` goes up from where a link has led.

            What does not exist yet is where its deepest existing parent leads. Raises Unavailable (UNJUDGED_ARGS)
            where that cannot be told: a loop, a directory that may not be searched.
            """

        def exists(self, path: str) -> bool:
            """Whether anything is there; a link that leads nowhere is not."""

        def same(self, path: str, other: str) -> bool:
            """Whether two names, alike but for case or normal form, are one directory to the file system."""
