"""Asks each store for a few bytes now and then, so that a node that moves nothing reports a store
that is down, and a hanging store is reported before the calls to it time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafka_formats.errors import NotFound
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Ambient
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.tier_store import TierStore, TierStores

INTERVAL_S = 10.0
DEADLINE_S = 8.0
"""With the pause: trouble is known within 20 s."""


class StoreWatch:
    """One per node. It decides nothing: copies, reads and deletes find out for themselves."""

    def __init__(
        self,
        stores: TierStores,
        ambient: Ambient,
        problem_log: ProblemLog,
        hung: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`hung` returns `HungCalls.texts`."""
        self._hung = hung
        self._stores = stores
        self._ambient = ambient
        self._log = problem_log
        self._silent: dict[str, str] = {}
        self._since_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Ask all stores, for as long as the node runs."""
        while True:
            await asyncio.gather(*map(self._ask, self._stores.by_name.values()))
            await self._ambient.sleep(INTERVAL_S)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The stores that did not answer last time, and those with hanging calls."""
        texts = dict(self._silent)
        for name, text in self._hung().items():
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
            pass  # an answer; whoever reads the marker judges it
        except TimeoutError:
            self._is_silent(tier, f"no answer in {DEADLINE_S:g} s")
            return
        except Exception as error:  # noqa: BLE001 - told; the next round asks again
            self._is_silent(tier, str(error) or type(error).__name__)
            self._log.failed(subject, error)
            return
        self._silent.pop(tier.name, None)
        self._since_ms.pop(tier.name, None)
        self._log.works(subject)

    def _is_silent(self, tier: TierStore, text: str) -> None:
        now_ms = self._ambient.now_ms()
        since_s = (now_ms - self._since_ms.setdefault(tier.name, now_ms)) / 1000
        for_how_long = "" if since_s < 1 else f", for {since_s:.0f} s"
        self._silent[tier.name] = f"it does not work now{for_how_long}: {text}"
