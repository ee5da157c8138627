"""Start the judge of a client, once: what a hook command runs when nobody answers it.

    python -I -m subluminal.adapters.hook.start CLIENT RUN_DIR PID STARTED

Returns 0 when a judge listens, whoever started it. Of many that come at once one starts it, the others wait. The judge
is nobody's child, in a session of its own, and keeps no descriptor of the hook: its client would wait for the end of
the hook's output.

Who acts is the client's process: its environment and its directory, not those of the hook, which a project's settings
or the agent itself may have changed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys

from subluminal.contracts.vocabulary import BUILTIN_SERVER, REPLAYED
from subluminal.host import home
from subluminal.host.files import open_private
from subluminal.host.identity import borrow_environment, environment_of, host_id, start_time

# As long as a hook command waits.
DEADLINE_S = 20
EXIT_FAILED = 3
_READY = b"1"
_IN_REPLAY = (
    "This run is a replay of a recorded one, in which nothing is executed: the client's own tools are not run. "
    "Go on with the tools of its servers."
)


def main(words: list[str]) -> int:
    if len(words) != 4 or not words[2].isdigit():
        return EXIT_FAILED
    client, sub_home, pid, started = words[0], os.path.dirname(words[1]), int(words[2]), words[3]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(DEADLINE_S)
    os.environ["SUB_HOME"] = sub_home
    if home.judge_socket_name(pid, start_time(pid)) != home.judge_socket_name(pid, started):
        return EXIT_FAILED  # it has gone meanwhile
    try:
        home.ensure_private_dir(home.run_dir())
        lock = open_private(home.judges_lock(), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}")
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        return _start(client, pid)
    finally:
        os.close(lock)


def _start(client: str, pid: int) -> int:
    from subluminal.adapters.hook.judge import answers

    started = start_time(pid)
    if answers(home.judge_socket_name(pid, started)):
        return 0
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.close(reading)
            _become_judge(client, pid, started, writing)
        except BaseException as error:  # the hook command is told, as far as it still listens
            _tell(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        word = told.read(64)
    return 0 if word == _READY else _failed(word.decode("ascii", "replace") or "it ended at once")


def _become_judge(client: str, pid: int, started: str, ready: int) -> None:
    signal.alarm(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    ready = os.dup2(ready, 3, inheritable=False) if ready != 3 else ready
    os.closerange(4, 1024)
    _take_place_of(client, pid)

    from subluminal.adapters.hook.calls import Calls
    from subluminal.adapters.hook.judge import Client, Judge, Listener
    from subluminal.host.config import load_config
    from subluminal.policy.closed import keep_markers
    from subluminal.producer.producer import assemble

    config = load_config(os.environ)
    producer = assemble(os.environ, client=client, config=config)
    cwd = os.getcwd()

    def reloaded() -> None:
        keep_markers(os.environ, cwd)

    in_replay = "SUB_REPLAY" in os.environ
    if in_replay:
        producer.gate.refuse_server(BUILTIN_SERVER, REPLAYED, _IN_REPLAY)
    reloaded()
    _remove_left_sockets()
    calls = Calls(producer, config, reloaded, only_builtin=in_replay)
    listener = Listener(home.judge_socket_name(pid, started))
    judge = Judge(listener, producer, calls, Client(pid, started), config.health_ms)
    producer.open({"server_name": "builtin"})
    _tell(ready, _READY)
    judge.run()


def _take_place_of(client: str, pid: int) -> None:
    """The environment and the directory of the client's process, where the system shows them."""
    sub_home = os.environ["SUB_HOME"]
    theirs = environment_of(pid)
    if theirs:
        os.environ.clear()
        os.environ.update(theirs)
    os.environ["SUB_HOME"] = sub_home
    borrow_environment(os.environ, of=pid)
    os.environ["SUB_HOME"] = sub_home
    for directory in (f"/proc/{pid}/cwd", os.environ.get("CLAUDE_PROJECT_DIR", ""), "."):
        try:
            os.chdir(directory)
            break
        except OSError:
            continue
    if os.environ.get("SUB_EVENTS", "").startswith("fd:"):
        del os.environ["SUB_EVENTS"]  # a descriptor of theirs is none of ours
    if not os.environ.get("SUB_RUN_ID"):
        from subluminal.host.client_process import derived_run_id

        os.environ["SUB_RUN_ID"] = derived_run_id(host_id(), pid)


def _remove_left_sockets() -> None:
    """Of judges that were killed, and whose client has gone as well."""
    for name in os.listdir(home.run_dir()):
        words = name.removesuffix(".sock").split("-", 2)
        if not name.endswith(".sock") or len(words) != 3 or words[0] != "judge" or not words[1].isdigit():
            continue
        if name != home.judge_socket_name(int(words[1]), start_time(int(words[1]))):
            try:
                os.unlink(os.path.join(home.run_dir(), name))
            except OSError:
                pass


def _tell(descriptor: int, word: bytes) -> None:
    try:
        os.write(descriptor, word)
        os.close(descriptor)
    except OSError:
        pass


def _failed(why: str) -> int:
    sys.stderr.write(f"sub: the judge of this client's hooks cannot be started: {why}. Run `sub doctor`.\n")
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
