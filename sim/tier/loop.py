"""The simulated loop for processes that are killed in the middle of streams and uploads."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from sim.nodes.loop import LIFE, VirtualLoop


class TierLoop(VirtualLoop):
    """A loop where tasks begun by a dying process never run."""

    def create_task(  # type: ignore[override]  # names and contexts only
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        life = LIFE.get() if context is None else context.get(LIFE)
        if life is not None and not life.alive:
            coro.close()
        return super().create_task(coro, name=name, context=context)


@contextmanager
def the_dead_are_unheard() -> Iterator[None]:
    """Close the coroutines and streams of killed processes within the block, and drop their
    complaints. Garbage is looked for in what the block made. What was there before is kept from the
    collector for good: it would go through all that pytest imported and collected for each world,
    and even to count it took a tenth of a second.
    """
    hook, hooks = sys.unraisablehook, sys.get_asyncgen_hooks()
    sys.unraisablehook = lambda _: None
    sys.set_asyncgen_hooks(finalizer=lambda _: None)
    gc.freeze()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            # What a dying upload would have begun in its last breath is never awaited.
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        sys.unraisablehook = hook
        sys.set_asyncgen_hooks(*hooks)
