"""Where paths start and lead: what `path_within` needs to know of the machine. The core does no I/O of its own."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Places(Protocol):
        """Passed in by whoever builds an `Engine`. Absolute POSIX paths throughout."""

        home: str  # what `~` is, in a policy and to the server
        root: str  # where relative entries of a policy start: the run's repository root, else its first directory
        working_dir: str  # where the server's own relative paths start

        def real(self, path: str) -> str:
            """With symbolic links resolved, of its deepest existing parent where it does not exist yet.

            Raises Unavailable (UNJUDGED_ARGS) where that cannot be told: a loop, a directory that may not be read.
            """

        def ignores_case(self, path: str) -> bool:
            """Whether the file system at this (real) path takes `A` and `a` for one name."""
