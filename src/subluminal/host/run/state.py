"""The state of one run, shared by all its shims: a file in `SUB_HOME/run/`; and of wide scopes, one for all runs.

`table` says how entries are kept, and why a process may be killed at any instant. A call that changes both files
publishes the wide one first: a kill in between leaves a charge without a call, never a call without its charge.

A damaged file is not a fresh one. Every call that needs it is judged by `decision_on_error`; where that says ALLOW, the
file is set aside and a fresh one begun (`start_afresh`), else calls are refused until an operator has looked
(`sub doctor`, `sub state --reset`).
"""

from __future__ import annotations

import os
import struct
import time
from fcntl import LOCK_UN, flock
from zlib import crc32

from subluminal.core.engine.state import (
    MARK,
    TERMINATE,
    WIDE,
    WINDOW,
    LocalState,
    StateDamaged,
    StateUnavailable,
    terminate_op,
)
from subluminal.host.home import ensure_private_dir, run_dir, wide_state_file
from subluminal.host.run.files import boot_id, boot_ms, create_file, fault, salt_of, state_path
from subluminal.host.run.pages import FLAG_AT, FLAG_BYTES
from subluminal.host.run.table import Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.state import Op

_FLAG = struct.Struct("<IHHHH")
_DAMAGED = "the run's state file is damaged"
_WIDE_DAMAGED = "the state file of this machine is damaged"
_NO_WORDS = ("RUN_TERMINATED", "This run has been terminated.", "", "")


class SharedState:
    """The state of one run, seen by this process. Same interface as `LocalState`."""

    __slots__ = (
        "_boot", "_damage", "_flag", "_held", "_last_seq", "_more", "_new_boot", "_run_id", "_wary", "_wide",
        "_wide_damaged", "_wide_held", "_with_wide", "get", "kept", "missing", "path", "reason", "stopped", "table",
        "wide_ms",
    )  # fmt: skip

    def __init__(self, run_id: str, path: str, fd: int, damage: str | None) -> None:
        self.path = path
        self.reason: str | None = None
        self.stopped = False  # the run was terminated, as far as the last `begin` or `next_seq` saw
        self.wide_ms = 0
        self.table = Table(fd, salt_of(fd))
        self.get = self.table.get
        self._run_id = run_id
        self._damage = damage
        self._flag: tuple[str, str, str, str] | None = None
        self._boot = boot_id()
        self._last_seq = 0
        self._held = False  # the lock is ours already, taken by `try_lock`
        self._more = 0  # calls that follow at once: so many times the lock is kept after a commit
        self.kept = False  # it was: nobody has changed an entry since our last commit
        self._wary = False  # what several calls did could not be written: the next must be, before anything is kept
        self.missing = self.table.lock  # what `try_lock` could not have
        self._wide: Table | None = None
        self._wide_held = False  # and that of the wide state
        self._with_wide = False
        self._wide_damaged = False
        self._new_boot = False

    # -- opening ----------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, run_id: str, directory: str | None = None) -> SharedState | LocalState:
        """The run's shared state; where that cannot be had, a local one whose `reason` says why."""
        try:
            state = cls(run_id, *open_file(state_path(run_id, directory or run_dir()), run_id))
            if state._damage is None:
                state._settle_in(directory)
            return state
        except (OSError, StateUnavailable) as error:
            why = getattr(error, "strerror", None) or str(error)
            return LocalState(f"run state is not shared between the servers of this run: {why}")

    def _settle_in(self, directory: str | None) -> None:
        """What an earlier boot or an earlier format left."""
        table = self.table
        try:
            self.begin()
        except StateUnavailable:
            return
        try:
            if not table.calls + table.plain_calls + table.terminated:
                self._take_over_old(state_path(self._run_id, directory, 1))
            if table.boot != self._boot:  # its times mean nothing any more; counts stay true
                table.forget(lambda pool, values: pool not in (MARK, WINDOW) and not values[2])
                table.boot, table.changed = self._boot, True
                table.commit([])
        except StateDamaged as damage:
            self._damage = str(damage)
        finally:
            self.abandon()

    def _take_over_old(self, path: str) -> None:
        if not os.path.exists(path):
            return
        from subluminal.host.run.legacy import read_old  # few runs began under it

        old = read_old(path)
        if old is not None:
            self.table.boot, self.table.changed = old.boot, True
            self.table.commit(old.ops, old.calls)
            if old.ended:
                self.table.kill()

    def close(self) -> None:
        self.table.close()
        if self._wide is not None:
            self._wide.close()

    def drop(self) -> None:
        """In a forked child: close what is the parent's, if its numbers are still ours."""
        from subluminal.host.record.sinks import still_names

        if still_names(self.table.fd, self.path):
            self.table.close()
        if self._wide is not None and still_names(self._wide.fd, wide_state_file()):
            self._wide.close()

    # -- the state interface ----------------------------------------------------------------------------------

    @property
    def terminated(self) -> tuple[str, str] | None:
        """(code, message) once the run has been terminated; a look without the lock as long as it has not."""
        return None if not self._ended() else self._read_flag()[:2]

    @property
    def terminated_by(self) -> tuple[str, str] | None:
        return None if not self._ended() else self._read_flag()[2:]

    def _ended(self) -> bool:
        if not self.stopped:
            try:
                self.table.read()
            except StateUnavailable:
                pass  # the word may have been read all the same
            self.stopped = bool(self.table.killed)
        return self.stopped

    def begin(self, wide: bool = False) -> None:
        """Become the only one to change the state, and know everything the others did."""
        table = self.table
        if self._damage is not None:
            raise StateDamaged(f"{_DAMAGED}: {self._damage}")
        try:
            if self.kept:
                self.kept = False
            elif self._held:
                self._held = False
                table.begin(held=True)
            else:
                table.begin()
        except StateDamaged as damage:
            raise StateDamaged(f"{_DAMAGED}: {damage}") from None
        self.stopped = table.stopped
        if not wide:
            if self._wide_held:
                self._let_wide_go()
        else:
            try:
                self._begin_wide()
            except BaseException:
                self._publish()
                flock(table.fd, LOCK_UN)
                raise
            self._with_wide = True
            self.get = self._get_either

    def _begin_wide(self) -> None:
        try:
            if self._wide is None:
                self._wide = open_wide()
            wide = self._wide
            held, self._wide_held = self._wide_held, False
            wide.begin(held)
        except StateDamaged as damage:
            self._wide_damaged = True
            raise StateDamaged(f"{_WIDE_DAMAGED}: {damage}") from None
        self._new_boot = wide.boot != self._boot
        wide.wide_at = self.wide_ms = wide_time(wide, self._boot)
        wide.mono_at, wide.boot, wide.changed = boot_ms(), self._boot, True

    def _get_either(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        if pool < WIDE:
            return self.table.get(pool, key)
        assert self._wide is not None
        return self._wide.get(pool - WIDE, key)

    def commit(self, ops: list[Op], count_call: bool = False) -> int:
        """Publish the operations as a whole and let the others go on; with `count_call` take a call number."""
        if not ops or self._with_wide or self.stopped or ops[-1][0] == TERMINATE:
            return self._commit_unusual(ops, count_call)
        if self._more:
            return self._commit_and_keep(ops, count_call)
        try:
            self._last_seq = seq = self.table.commit(ops, count_call)
            self._wary = False
        except BaseException:  # and with it what was kept before
            self._wary = True
            raise
        finally:
            flock(self.table.fd, LOCK_UN)
        return seq if count_call else 0

    def _commit_and_keep(self, ops: list[Op], count_call: bool) -> int:
        """For a call that others follow at once: published with the last of them."""
        try:
            self._last_seq = seq = self.table.commit(ops, count_call, defer=True)
        except BaseException:
            self._more, self._wary = 0, True
            flock(self.table.fd, LOCK_UN)
            raise
        self._more -= 1
        self.kept = True
        return seq if count_call else 0

    def _commit_unusual(self, ops: list[Op], count_call: bool) -> int:
        """Nothing to change, or more than entries of the run."""
        table = self.table
        try:
            if not ops and not self._with_wide:
                return table.count() if count_call else 0
            if ops and ops[-1][0] == TERMINATE:  # it comes last, if at all
                *ops, flag = ops
                if not table.terminated:
                    self._write_flag(flag[1:])
            if self._with_wide and self._wide is not None:
                wide = [(op[0] - WIDE, *op[1:]) for op in ops if op[0] >= WIDE]
                if wide or self._new_boot:  # time goes on from here, whatever becomes of this call
                    self._commit_wide(self._wide, wide)
                ops = [op for op in ops if op[0] < WIDE]
            self._last_seq = table.commit(ops, count_call)
            if table.terminated and not table.killed:
                table.kill()
            return self._last_seq if count_call else 0
        except BaseException:
            self._wary = True
            raise
        finally:
            self.abandon()

    def _commit_wide(self, table: Table, ops: list[Op]) -> None:
        try:
            table.commit(ops)
        except StateDamaged as damage:
            self._wide_damaged = True
            raise StateDamaged(f"{_WIDE_DAMAGED}: {damage}") from None

    def abandon(self) -> None:
        self._publish()
        if self._with_wide:
            self._with_wide = False
            if self._wide is not None:
                flock(self._wide.fd, LOCK_UN)
            self.get = self.table.get
        flock(self.table.fd, LOCK_UN)

    def next_seq(self) -> int:
        """The next call number of the run. Never fails: without the lock it may repeat another shim's number."""
        table = self.table
        try:
            if self._damage is not None:
                raise StateDamaged(self._damage)
            held, self._held, self.kept = self._held or self.kept, False, False
            self._let_wide_go()
            table.begin(held)
            try:
                self.stopped = table.stopped
                self._last_seq = table.count()
            finally:
                self._publish()
                flock(table.fd, LOCK_UN)
        except StateUnavailable:
            self._ended()
            self._last_seq = max(self._last_seq, table.calls + table.plain_calls) + 1
        return self._last_seq

    def terminate(self, code: str, message: str) -> None:
        self.begin()
        self.commit([terminate_op(code, message)])

    def start_afresh(self) -> None:
        """Set what is damaged aside, unless another process has done so, and go on with what is in its place."""
        try:
            if self._wide_damaged:
                damaged, self._wide = self._wide, None
                try:
                    self._wide = open_wide(afresh=True, in_place_of=damaged)
                finally:
                    if damaged is not None:
                        damaged.close()
                self._wide_damaged = False
                return
            killed = self._ended()
            fresh = replace_file(self.path, self._run_id, self.table.fd)
        except (OSError, StateUnavailable):
            return  # still damaged, and still said so
        self.table.close()
        self.table = Table(fresh, salt_of(fresh))
        self.get = self.table.get
        self._damage = fault(fresh)
        if killed:
            self.table.kill()

    # -- for callers that have several calls at hand ----------------------------------------------------------

    def keep(self, calls: int) -> None:
        """So many calls follow at once, and nothing of them goes anywhere before `let_go`: one lock and one store for
        all.

        A process that is killed before leaves nothing of them. Where they cannot be written, they were judged all the
        same; every call after them is written by itself, and not judged by state that cannot be. A kill of the run from
        outside is seen with the next lock.
        """
        if not self._wary:
            self._more = calls - 1

    def _publish(self) -> None:
        if self.table.unpublished:
            try:
                self.table.publish()
            except StateUnavailable:
                self._wary = True

    # -- for callers that run a loop --------------------------------------------------------------------------

    def try_lock(self, wide: bool = False) -> bool:
        """The lock, if it can be had at once, for the next `begin`; with `wide` both. Else `missing` is waited for."""
        if not self._held and not self.kept:
            try:
                self._held = self.table.lock.take_asked() or self.table.lock.take(0)
            except OSError:
                return True  # `begin` meets the same, and says so
            if not self._held:
                self.missing = self.table.lock
                self._leave_wide()
        had = self._held or self.kept
        if not had or not wide or self._wide_held:
            return had
        try:
            if self._wide is None:
                self._wide = open_wide()
            self._wide_held = self._wide.lock.take_asked() or self._wide.lock.take(0)
        except (OSError, StateUnavailable):
            return True
        if not self._wide_held:
            self.missing = self._wide.lock
            self.let_go()  # others of the run need not wait for those of the machine
        return self._wide_held

    def let_go(self) -> None:
        """What `try_lock` took, or was kept, and no `begin` has used."""
        self._more = 0
        self._let_wide_go()
        if self._held or self.kept:
            self._publish()
            self._held = self.kept = False
            flock(self.table.fd, LOCK_UN)

    def _let_wide_go(self) -> None:
        if self._wide_held and self._wide is not None:
            self._wide_held = False
            flock(self._wide.fd, LOCK_UN)

    def _leave_wide(self) -> None:
        """Whoever waits for the run's must not keep that of the machine meanwhile."""
        if self._wide is not None and self._wide.lock.give_up():
            self._wide_held = True
        self._let_wide_go()

    def wait_no_more(self) -> None:
        """Until `try_lock` has succeeded, `begin` fails at once where it would wait: whoever calls has waited."""
        self.table.wait = 0.0
        if self._wide is not None:
            self._wide.wait = 0.0

    def keep_asked(self) -> None:
        """Nobody waits any more: what was asked for and has come is held for the next `begin`, else given up."""
        self._held = self._held or self.table.lock.give_up()
        if self._wide is not None:
            self._wide_held = self._wide_held or self._wide.lock.give_up()

    # -- why the run was terminated ---------------------------------------------------------------------------

    def _write_flag(self, texts: tuple[str, ...]) -> None:
        raws = [text.encode("utf-8", "replace") for text in texts]
        tail = struct.pack("<HHHH", *map(len, raws)) + b"".join(raws)
        self.table.write_at(crc32(tail).to_bytes(4, "little") + tail, FLAG_AT)
        self.table.terminated, self.table.changed = 1, True
        self._flag = None

    def _read_flag(self) -> tuple[str, str, str, str]:
        """The order stands even where its words cannot be read."""
        if self._flag is None:
            raw = os.pread(self.table.fd, FLAG_BYTES, FLAG_AT)
            if len(raw) < FLAG_BYTES:
                return _NO_WORDS
            crc, *lengths = _FLAG.unpack_from(raw)
            if not any(lengths) or crc32(raw[4 : _FLAG.size + sum(lengths)]) != crc:
                return _NO_WORDS
            texts, at = [], _FLAG.size
            for length in lengths:
                texts.append(raw[at : at + length].decode("utf-8", "replace"))
                at += length
            self._flag = (texts[0], texts[1], texts[2], texts[3])
        return self._flag


# -- files ----------------------------------------------------------------------------------------------------


def open_file(path: str, run_id: str, *, create: bool = True) -> tuple[str, int, str | None]:
    """Path, descriptor, and what is wrong with the file, if anything."""
    if create:
        ensure_private_dir(os.path.dirname(path))
    for _ in range(8):  # each round another process may create, replace or remove the file
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            if not create:
                raise
            create_file(path, run_id)
            continue
        try:
            return path, fd, fault(fd)
        except BaseException:
            os.close(fd)
            raise
    raise StateUnavailable("the state file keeps changing")


def replace_file(path: str, run_id: str, fd: int) -> int:
    """The descriptor of the file that stands in the place of the damaged one, made if need be."""
    old, present = os.fstat(fd), None
    try:
        present = os.lstat(path)
    except FileNotFoundError:
        pass
    if present is not None and (present.st_ino, present.st_dev) == (old.st_ino, old.st_dev):
        os.rename(path, f"{path}.bad")
    return open_file(path, run_id)[1]


def open_wide(*, afresh: bool = False, in_place_of: Table | None = None) -> Table:
    """With `afresh`, what is damaged is set aside; `in_place_of` is what its reader has found to be so."""
    path = wide_state_file()
    try:
        if in_place_of is not None:
            os.close(replace_file(path, "", in_place_of.fd))
        _, fd, damage = open_file(path, "")
        if damage is not None and afresh:
            fresh = replace_file(path, "", fd)
            os.close(fd)
            fd, damage = fresh, fault(fresh)
    except OSError as error:
        raise StateUnavailable(f"the state of wide scopes cannot be opened: {error.strerror}") from None
    if damage is not None:
        os.close(fd)
        raise StateDamaged(damage)
    return Table(fd, salt_of(fd))


def wide_time(wide: Table, boot: int) -> int:
    """Milliseconds that only go forward. While the machine is up they do not depend on its calendar at all."""
    if wide.boot == boot and boot:
        return wide.wide_at + max(0, boot_ms() - wide.mono_at)
    return max(wide.wide_at, time.time_ns() // 1_000_000)
