"""Work that goes on round after round in a thread of its own, beside a test."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class BackgroundRounds:
    """From when it is entered until it is left; a failure of the work is raised then."""

    def __init__(self, name: str, *, pause_s: float, join_deadline_s: float) -> None:
        """`pause_s` lie between two rounds; a round has `join_deadline_s` to end in the end."""
        self._pause_s = pause_s
        self._join_deadline_s = join_deadline_s
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(self._join_deadline_s)
        assert not self._thread.is_alive(), f"the {self._thread.name} hangs"
        if self._error is not None and error is None:
            raise self._error

    def begin(self) -> None:
        """What the thread does before its first round."""

    def do_round(self) -> None:
        """One of them."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.begin()
            while not self._stop.wait(self._pause_s):
                self.do_round()
        except BaseException as error:
            self._error = error
