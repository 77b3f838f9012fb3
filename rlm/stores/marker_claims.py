"""Claims the cluster markers of this node's stores: the default store first, then the others.

Copies go to the default store, so a node that may not use it does not start. If the default store
only cannot be reached, the node runs: it votes, and answers from the metadata. While a different
store is unreachable or belongs to a different cluster, the node runs, reports it, and removes
nothing there. Nothing is written to a store before its marker was read. Reads need no marker: every
byte is checked against its checksum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.stores.cluster_marker import (
    ClusterMarker,
    claim_prefix,
    confirm_prefix,
    follow_takeover,
    ignore_shut_out,
)
from rlm.stores.store_history import check_may_be_new, check_not_set_back
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager

logger = logging.getLogger(__name__)

OTHERS_WAIT_S = 5.0
"""The time (s) that the start waits for the stores that it can do without."""

FIRST_PAUSE_S = 1.0
"""The pause before the second look at a missing store. It doubles, up to `store_retry_s`, so that
copies go on a moment after a short outage.
"""

NOT_CHECKED = "its cluster marker has not been read yet"


@dataclass(slots=True)
class StoreClaims:
    """The stores whose markers are this cluster's. `metadata` None: no segment is recorded yet."""

    stores: TierStores
    around: Surroundings
    metadata: RemoteLogMetadataManager | None = None
    on_shut_out: Callable[[str], None] = ignore_shut_out
    _log: ProblemLog = field(default_factory=lambda: ProblemLog(logger), init=False)
    _missing: dict[str, str] = field(init=False)
    _looked: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _lacking: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        others = (name for name in self.stores.by_name if name != self.stores.default_name)
        self._missing = dict.fromkeys(others, NOT_CHECKED)

    async def start(self, *, may_be_away: bool = False) -> None:
        """Claim the default store, or raise as `claim_prefix`; then claim the others.
        `may_be_away`: if the default store is unreachable, it is claimed later.
        """
        try:
            await self._claim(self.stores.default)
        except (RetryLater, InvalidRequest) as error:
            if not (may_be_away and self._is_away(error)):
                raise
            self._is_missing(self.stores.default_name, error)
        if not self._missing or self._task is not None:
            return
        self._task = asyncio.create_task(self._claim_others(), name="claim stores")
        try:
            async with asyncio.timeout(OTHERS_WAIT_S):
                await self._looked.wait()
        except TimeoutError:
            pass  # these stores are a problem until they answer; the node goes on without them

    def _is_away(self, error: RetryLater | InvalidRequest) -> bool:
        """True if the store is unreachable, or its bucket is gone although segments are recorded.
        At a first start a missing bucket is a wrong setting, which must be reported at once.
        """
        if isinstance(error, RetryLater):
            return True
        return self.metadata is not None and next(self.metadata.partitions(), None) is not None

    async def look_again(self) -> None:
        """Confirm all stores. Raises for the default store; each other store that fails counts as
        missing until it is claimed again.
        """
        if self.stores.default_name not in self._missing:
            await self.confirm(self.stores.default)
        for name, tier in self.stores.by_name.items():
            if name == self.stores.default_name or name in self._missing:
                continue
            try:
                await self.confirm(tier)
            except Exception as error:  # noqa: BLE001 - reported and logged; the node runs on
                self._is_missing(name, error)

    async def close(self) -> None:
        """Stop claiming. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def check(self, name: str) -> None:
        """Raise RetryLater if nothing may be written to, or removed from, the store."""
        text = self._missing.get(name)
        if text is not None:
            raise RetryLater(f"the store {name!r} cannot be used now: {text}")

    async def confirm(self, tier: TierStore) -> None:
        """Read the store's marker before a write or a delete. Refused: the prefix belongs to a
        different cluster. RetryLater: its owner is unknown now.
        """
        self.check(tier.name)
        await confirm_prefix(
            tier,
            self.around.identity,
            deadline_s=self.around.limits.store_deadline_s,
            on_shut_out=self.on_shut_out,
        )

    def problems(self) -> tuple[NodeProblem, ...]:
        return tuple(
            NodeProblem(ProblemArea.STORE, name, text)
            for name, text in sorted(self._missing.items())
        )

    async def _claim(self, tier: TierStore) -> None:
        async def check() -> None:
            if self.metadata is not None:
                await check_may_be_new(
                    self.metadata,
                    tier,
                    ClusterMarker.of(self.around.identity, tier),
                    self.around.ambient,
                    is_default=tier.name == self.stores.default_name,
                )

        identity, deadline_s = self.around.identity, self.around.limits.store_deadline_s
        if tier.name != self.stores.default_name:
            stores = self.stores.default_first
            await follow_takeover(tier, stores, identity, deadline_s=deadline_s, confirmed=False)
        await claim_prefix(tier, identity, deadline_s=deadline_s, check_may_be_new=check)
        if self.metadata is not None and tier.name == self.stores.default_name:
            await self._check_not_set_back(self.metadata)

    async def _check_not_set_back(self, metadata: RemoteLogMetadataManager) -> None:
        try:
            await check_not_set_back(
                metadata,
                self.stores.default,
                self.around.identity.cluster_id,
                deadline_s=self.around.limits.store_deadline_s,
            )
        except Refused as error:
            self.on_shut_out(str(error))
            raise

    async def _claim_others(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await asyncio.gather(*map(self._try, tuple(self._missing)))
            self._looked.set()
            if not self._missing:
                self._lacking.clear()
                await self._lacking.wait()
                pause_s = FIRST_PAUSE_S
            await self.around.ambient.sleep(pause_s)
            pause_s = min(2 * pause_s, self.around.limits.store_retry_s)

    async def _try(self, name: str) -> None:
        try:
            await self._claim(self.stores.by_name[name])
        except Exception as error:  # noqa: BLE001 - reported and logged; the node runs on
            self._is_missing(name, error)
        else:
            del self._missing[name]
            self._log.works(_looking_at(name))

    def _is_missing(self, name: str, error: Exception) -> None:
        self._missing[name] = str(error) or type(error).__name__
        self._lacking.set()
        self._log.failed(_looking_at(name), error)


def _looking_at(name: str) -> str:
    return f"looking at the cluster marker of the store {name!r}"
