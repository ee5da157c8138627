"""The process of a client with hooks (see `hooks`): runs each command it is given on stdin, any number at once.

Standard library only, and little of it: it stands for a client that runs already.
"""

from __future__ import annotations

import binascii
import json
import subprocess
import sys
import threading


def main() -> None:
    answering = threading.Lock()  # a long line is written in more than one step

    def run(number: int, command: str, payload: str, cwd: str) -> None:
        given = binascii.a2b_base64(payload)
        done = subprocess.run(["/bin/sh", "-c", command], input=given, capture_output=True, cwd=cwd, check=False)
        line = json.dumps([number, done.returncode, done.stdout.decode(), done.stderr.decode()]).encode() + b"\n"
        with answering:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    running = []
    for line in sys.stdin.buffer:
        thread = threading.Thread(target=run, args=json.loads(line))
        thread.start()
        running.append(thread)
    for thread in running:
        thread.join()


if __name__ == "__main__":
    main()
