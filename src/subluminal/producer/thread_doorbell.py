"""The doorbell of a process whose loop must not wait: starting ledgerd takes milliseconds."""

from __future__ import annotations

import threading

from subluminal.host.record.doorbell import DELAY_MS, Doorbell


class ThreadDoorbell(Doorbell):
    """Rung from a thread that ends with the process: nobody here has a loop to ring it from."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(enabled)
        self._pressed = threading.Event()
        self._thread: threading.Thread | None = None

    def press(self) -> None:
        if not self.enabled or self._pressed.is_set():
            return
        self._pressed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="subluminal-doorbell", daemon=True)
            self._thread.start()

    def _answer(self) -> None:
        quiet = threading.Event()
        while True:
            self._pressed.wait()
            quiet.wait(DELAY_MS / 1000)
            self._pressed.clear()
            self.ring()


class SharedDoorbell(Doorbell):
    """One of many on one wire: a producer that ends only presses it, for the others go on."""

    def __init__(self, bell: Doorbell) -> None:
        super().__init__(bell.enabled)
        self._bell = bell

    def press(self) -> None:
        self._bell.press()

    def ring(self, last: bool = False) -> None:
        self._bell.press()
