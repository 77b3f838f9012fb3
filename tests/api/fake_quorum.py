"""A metadata quorum for the routes: what it was asked, and what it is told to answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rlmm.log.quorum_records import Voter
from rlmm.quorum.admin import CanStop, QuorumAdmin
from rlmm.rows.feature_level import FeatureLevels, check_may_finalise


@dataclass
class FakeQuorum(QuorumAdmin):
    """`error` is raised by whatever is asked next; `never_answers` keeps everybody waiting;
    `levels_known` are the feature levels of its one node, None: all.
    """

    asked: list[tuple[object, ...]] = field(default_factory=list)
    error: Exception | None = None
    never_answers: bool = False
    levels_known: FeatureLevels | None = None

    async def add_voter(self, voter: Voter, /, *, deadline_s: float) -> None:
        await self._ask("add", voter)

    async def remove_voter(
        self, node_id: int, directory_id: str | None, /, *, deadline_s: float
    ) -> None:
        await self._ask("remove", node_id, directory_id)

    async def transfer(self, node_id: int | None, /, *, deadline_s: float) -> None:
        await self._ask("transfer", node_id)

    async def accept_cut(self, *, deadline_s: float) -> None:
        await self._ask("accept-cut")

    async def check_feature_level(
        self, level: int, finalised: int, /, *, observers_upgraded: bool, deadline_s: float
    ) -> None:
        await self._ask("feature-level", level, finalised, observers_upgraded)
        if self.levels_known is not None:
            check_may_finalise(level, finalised, {1: self.levels_known}, ())

    def can_stop(self, node_id: int, /) -> CanStop:
        self._note("can-stop", node_id)
        return CanStop(node_id == 1, "2 other voters keep up, 2 are needed")

    async def _ask(self, *what: object) -> None:
        self._note(*what)
        if self.never_answers:
            await asyncio.Event().wait()

    def _note(self, *what: object) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(what)
