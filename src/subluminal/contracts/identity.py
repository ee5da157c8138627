"""Who is acting: the identity envelope every event carries (§1.3, §5), as plain slotted classes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Source:
    """The producer of an event: this machine, this process, this shim."""

    __slots__ = ("host_id", "proc_id", "shim_id")

    def __init__(self, host_id: str, proc_id: str, shim_id: str) -> None:
        self.host_id = host_id
        self.proc_id = proc_id
        self.shim_id = shim_id


class Identity:
    """The run and who started it. `principal` and `workload` are None when not known: absent, not invented.

    `meta` is what was said of the run (`run.meta` of §1.4): it stands in `run_start` only.
    """

    __slots__ = ("agent_id", "client", "env", "meta", "principal", "run_id", "workload")

    def __init__(
        self,
        run_id: str,
        agent_id: str = "unknown",
        client: str = "unknown",
        env: str = "unknown",
        principal: str | None = None,
        workload: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.run_id = run_id
        self.agent_id = agent_id
        self.client = client
        self.env = env
        self.principal = principal
        self.workload = workload
        self.meta = meta
