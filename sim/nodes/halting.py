"""Jobs of executors that stop in the middle, as a thread does that waits for its disk.

Such a job has a real thread. It and the loop never run at the same time, one waits for the other:
equal seeds run alike.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, events
from collections.abc import Callable
from threading import Semaphore, Thread, current_thread


class HaltingJob(Thread):
    """A job that runs from `go_on` to its next `halt`, or to its end. `halted` hears of each halt
    how many milliseconds it is to last; `ended` of the end.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        call: Callable[[], None],
        *,
        halted: Callable[[int], None],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(daemon=True)
        self._loop = loop
        self._call = call
        self._halted, self._ended = halted, ended
        self._go, self._back = Semaphore(0), Semaphore(0)
        self._halt_ms: int | None = None

    def go_on(self) -> None:
        """Run up to the next halt, or to the end."""
        self._halt_ms = None
        if self.ident is None:
            self.start()
        else:
            self._go.release()
        self._back.acquire()
        self._tell(self._halt_ms)

    def _tell(self, halt_ms: int | None) -> None:
        if halt_ms is not None:
            self._halted(halt_ms)
            return
        self.join()
        self._ended()

    def run(self) -> None:
        events._set_running_loop(self._loop)
        try:
            self._call()
        finally:
            self._back.release()

    def halt(self, halt_ms: int) -> None:
        """Stop in the job's own thread until somebody calls `go_on`."""
        self._halt_ms = halt_ms
        self._back.release()
        self._go.acquire()


def running_job() -> HaltingJob | None:
    """The job in whose thread this is called; None: it can't stop."""
    thread = current_thread()
    return thread if isinstance(thread, HaltingJob) else None
