"""Sends each store a small request at intervals, and reports calls that hang in a file system.

So an idle node reports a store that is down, and hanging calls before they time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_formats.errors import NotFound
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Ambient
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.tier_store import TierStore, TierStores
from rsm_backends.filesystem import THREADS_MAX
from rsm_backends.store_config import StoreConfig
from rsm_backends.store_threads import hanging_calls

INTERVAL_S = 10.0
DEADLINE_S = 8.0
"""The deadline of one request: with the pause, a failing store is reported within 20 s."""


class HungCalls:
    """Reports hanging calls, one per node. `workers` returns the counts of the workers, by the
    store's folder.
    """

    def __init__(
        self, configs: Mapping[str, StoreConfig], workers: Callable[[], Mapping[str, int]]
    ) -> None:
        self._folders = {
            name: str(config.path) for name, config in configs.items() if config.path is not None
        }
        self._workers = workers

    def texts(self) -> dict[str, str]:
        """The hanging calls as text, by the store's name; other calls may still work."""
        own, workers = hanging_calls(), self._workers()
        found = {}
        for name, folder in self._folders.items():
            count = own.get(folder, 0) + workers.get(folder, 0)
            if count:
                calls = "call hangs" if count == 1 else "calls hang"
                found[name] = (
                    f"{count} {calls} in the file system of {folder}: check that its disk or "
                    f"mount answers (df, dmesg). A process with {THREADS_MAX} of them refuses more"
                )
        return found


@dataclass(slots=True)
class StoreWatch:
    """The task that sends the requests, one per node. `hung` returns `HungCalls.texts`. Copies,
    reads and deletes do not depend on its findings.
    """

    stores: TierStores
    ambient: Ambient
    problem_log: ProblemLog
    hung: Callable[[], Mapping[str, str]] = dict
    _silent: dict[str, str] = field(default_factory=dict, init=False)
    _since_ms: dict[str, int] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Request the marker of all stores at intervals, for as long as the node runs."""
        while True:
            await asyncio.gather(*map(self._ask, self.stores.by_name.values()))
            await self.ambient.sleep(INTERVAL_S)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The stores that did not answer the last request, and those with hanging calls."""
        texts = dict(self._silent)
        for name, text in self.hung().items():
            texts[name] = f"{texts[name]}; {text}" if name in texts else text
        return tuple(
            NodeProblem(ProblemArea.STORE, name, text) for name, text in sorted(texts.items())
        )

    async def _ask(self, tier: TierStore) -> None:
        subject = f"asking the store {tier.name!r}"
        try:
            async with asyncio.timeout(DEADLINE_S):
                await tier.store.head(cluster_marker_key(tier.prefix))
        except NotFound:
            pass  # an answer; the code that reads the marker judges it
        except TimeoutError:
            self._is_silent(tier, f"no answer in {DEADLINE_S:g} s")
            return
        except Exception as error:  # noqa: BLE001 - reported; the next round tries again
            self._is_silent(tier, str(error) or type(error).__name__)
            self.problem_log.failed(subject, error)
            return
        self._silent.pop(tier.name, None)
        self._since_ms.pop(tier.name, None)
        self.problem_log.works(subject)

    def _is_silent(self, tier: TierStore, text: str) -> None:
        now_ms = self.ambient.now_ms()
        since_s = (now_ms - self._since_ms.setdefault(tier.name, now_ms)) / 1000
        for_how_long = "" if since_s < 1 else f", for {since_s:.0f} s"
        self._silent[tier.name] = f"it does not work now{for_how_long}: {text}"
