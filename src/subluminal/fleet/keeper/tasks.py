"""Which tasks the keeper of this machine has."""

from __future__ import annotations

from subluminal.contracts.errors import SubluminalError
from subluminal.fleet.joined import Joined
from subluminal.fleet.keeper.keeper import Task
from subluminal.ledger.daemon.log import Log


def tasks_of(joined: Joined, home: str, log: Log) -> list[Task]:
    from subluminal.fleet.keeper.refresh import RefreshTask
    from subluminal.fleet.keeper.stop import StopTask
    from subluminal.fleet.machine.origin import STOPS_APART, Origin
    from subluminal.fleet.telemetry.task import Telemetry

    tasks: list[Task] = [
        StopTask(Origin(joined.url, home, STOPS_APART), joined, home, log),
        RefreshTask(Origin(joined.url, home), joined, home, log),
    ]
    if joined.collector is not None:
        try:
            from subluminal.fleet.shipping.task import ship_task

            tasks.append(ship_task(joined, joined.collector, home))
            if joined.max_disk_bytes:
                from subluminal.fleet.shipping.room import RoomTask

                tasks.append(RoomTask(joined.max_disk_bytes, home, log))
        except (ImportError, SubluminalError) as error:  # policies and stops must not wait for it
            log(f"ship: {error}; nothing is shipped")
    tasks.append(Telemetry(home))
    return tasks
