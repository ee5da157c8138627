"""The hook command where there is no compiler: `client.c` in Python, with as little of it as will do.

    python -I -S -E sub-hook.pyc CLIENT EVENT RUN_DIR PYTHON

Put into SUB_HOME/bin as byte code, for to compile it takes as long as all the rest. It imports nothing of ours, and of
`socket` and `signal` only what is in C.
"""

import _signal as signal
import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, SOL_SOCKET, socket

FAILED = 3
ANSWERED = 90
DEADLINE_S = 20
MAX_ANCESTORS = 24
MAX_ANSWER = 65536
HEAD = 9
SHELLS = ("sh", "bash", "dash", "zsh", "ash", "fish", "env", "npx", "uvx", "timeout")


def facts(pid: int) -> tuple[str, int, str]:
    """(command, parent, start) of a process, as `host.identity.process_facts` has it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return ("", 0, "") if sys.platform == "linux" else from_ps(pid)
    fields = text[text.rindex(b")") + 2 :].split()
    return (
        text[text.index(b"(") + 1 : text.rindex(b")")].decode("utf-8", "replace"),
        int(fields[1]),
        fields[19].decode(),
    )


def from_ps(pid: int) -> tuple[str, int, str]:
    out = os.popen(f"ps -o ppid=,lstart=,comm= -p {pid}").read().split(None, 6)
    if len(out) < 7:
        return "", 0, ""
    return os.path.basename(out[6].strip()), int(out[0]), " ".join(out[1:6])


def find_client() -> tuple[int, str]:
    """The nearest process above us that is no shell."""
    pid = os.getppid()
    for _ in range(MAX_ANCESTORS):
        command, parent, started = facts(pid)
        if not started:
            break
        if parent <= 1 or command not in SHELLS:
            return pid, started
        pid = parent
    sys.exit(FAILED)


def is_ours(judge: socket) -> bool:
    if sys.platform == "linux":
        return judge.getsockopt(SOL_SOCKET, 17, 12)[4:8] == os.geteuid().to_bytes(4, sys.byteorder)
    return judge.getsockopt(0, 1, 128)[4:8] == os.geteuid().to_bytes(4, sys.byteorder)  # LOCAL_PEERCRED


def reach(directory: str, name: str) -> socket | None:
    """By its name from its directory: a path may be too long for a socket."""
    judge = socket(AF_UNIX, SOCK_STREAM)
    try:
        os.chdir(directory)
        judge.connect(name)
        if is_ours(judge):
            return judge
    except OSError:
        pass
    judge.close()
    return None


def start(words: list[str], pid: int, started: str, here: int) -> bool:
    argv = [words[4], "-I", "-m", "subluminal.adapters.hook.start", words[1], words[3], str(pid), started]
    null = os.open(os.devnull, os.O_RDWR)
    os.fchdir(here)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
    child = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    return os.waitpid(child, 0)[1] == 0


def main(words: list[str]) -> int:
    if len(words) != 5:
        return FAILED
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(DEADLINE_S)
    pid, started = find_client()
    name = f"judge-{pid}-{''.join(char if char.isalnum() else '_' for char in started)}.sock"
    here = os.open(".", os.O_RDONLY)
    judge = reach(words[3], name)
    if judge is None and start(words, pid, started, here):
        judge = reach(words[3], name)
    if judge is None:
        return FAILED
    try:
        judge.sendall(f"{words[1]} {words[2]}\n".encode())
        while piece := os.read(0, MAX_ANSWER):
            judge.sendall(piece)
        judge.shutdown(SHUT_WR)
    except OSError:
        pass  # it may have answered all the same
    answer = b""
    while len(answer) < MAX_ANSWER and (piece := judge.recv(MAX_ANSWER)):
        answer += piece
    if len(answer) < HEAD:
        return FAILED
    out, err = int.from_bytes(answer[1:5], "big"), int.from_bytes(answer[5:9], "big")
    if answer[0] not in (0, 2) or HEAD + out + err != len(answer):
        return FAILED
    for file, data in ((1, answer[HEAD : HEAD + out]), (2, answer[HEAD + out :])):
        while data:
            data = data[os.write(file, data) :]
    return ANSWERED + answer[0]


if __name__ == "__main__":
    try:
        code = main(sys.argv)
    except Exception:  # whatever it was, nobody has answered
        code = FAILED
    os._exit(code)
