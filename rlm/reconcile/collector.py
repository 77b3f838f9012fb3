"""Deletes garbage: objects of deleted segments, which a late request wrote again or a delete left
behind. An operator requests a pass over all stores; one runs at a time.

    list a page -> barrier of the metadata log -> look each id up -> classify       (all stores)
    the brake: if there are more orphans than a small part of all objects, the pass stops
    the same again, page by page, and the orphans of each page are deleted

Invariant (foreign_is_untouched): objects the log never knew stay. Memory is bounded by one page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from itertools import groupby, islice
from typing import Protocol

from kafka_formats.errors import Conflict, NotFound, Refused, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction, AuditLine, KeepAudit
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Surroundings
from rlm.delete.delete_due import delete_due_ms
from rlm.format.object_keys import ParsedSegmentKey, parse_segment_key
from rlm.reconcile.collection_plan import (
    IN_THE_LOG,
    NEVER_KNOWN,
    Known,
    ObjectClass,
    classify,
    objects_allowed,
)
from rlm.stores.object_deletion import delete_objects
from rlm.stores.tier_store import TierStore, TierStores, listed_pages
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from rsm_backends.store import ObjectInfo

logger = logging.getLogger(__name__)

COLLECTION = "collection"
"""Name of the problem of a stopped pass."""
DELETED_AT_ONCE = 100
EXAMPLES_MAX = 20
LOOKS_PER_SLICE = 32


class CollectionState(StrEnum):
    """The state of a pass. STOPPED: there were more orphans than it may delete."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CollectorLimits:
    """The limits of a pass. It deletes at most `delete_max_percent` of the log's objects, unless
    the operator accepts more.
    """

    delete_max_percent: float = 1.0
    barrier_deadline_s: float = 10.0


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    """The request for a pass. With `apply` False it only counts. `accept_objects` may be deleted,
    regardless of their share.
    """

    apply: bool = False
    accept_objects: int = 0


@dataclass(slots=True)
class Count:
    """The objects of a class and their bytes, with the first few keys as `store:key`."""

    objects: int = 0
    size_bytes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, store: str, info: ObjectInfo) -> None:
        self.objects += 1
        self.size_bytes += info.size
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{store}:{info.key}")


@dataclass(slots=True)
class Tally:
    """The objects of a class in one store, and their bytes."""

    objects: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Collection:
    """One pass and its result. `held_back` counts the orphans that may not be deleted now, by the
    reason. `by_store` has the tallies of each store's classes.
    """

    id: Uuid
    request: CollectionRequest
    by: str
    started_at_ms: int
    state: CollectionState = CollectionState.RUNNING
    ended_at_ms: int = -1
    text: str = ""
    listed: int = 0
    found: dict[ObjectClass, Count] = field(
        default_factory=lambda: {each: Count() for each in ObjectClass}
    )
    deleted: Count = field(default_factory=Count)
    held_back: dict[str, int] = field(default_factory=dict)
    by_store: dict[str, dict[ObjectClass, Tally]] = field(default_factory=dict)

    def add(self, store: str, class_: ObjectClass, info: ObjectInfo) -> None:
        self.listed += 1
        self.found[class_].add(store, info)
        tally = self.by_store.setdefault(store, {}).setdefault(class_, Tally())
        tally.objects += 1
        tally.size_bytes += info.size


class LookPort(Protocol):
    """The reads of the metadata that the collector needs."""

    async def barrier(self, *, deadline_s: float) -> None:
        """Wait until all records that were committed before this call are applied here."""

    def find_segment(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """The row of the segment with this id, or None."""

    def is_deleted(self, segment_id: RemoteLogSegmentId) -> bool:
        """True if the log knows that the deletion of this segment has finished."""


@dataclass(frozen=True, slots=True)
class Orphan:
    key: ParsedSegmentKey
    info: ObjectInfo


@dataclass(slots=True)
class Collector:
    """Runs passes, one at a time, and keeps the last one. `held_back` returns the reason why no
    segment of a topic may be deleted now, or None; "" for all topics.
    """

    look: LookPort
    stores: TierStores
    around: Surroundings
    _: KW_ONLY
    held_back: Callable[[str], str | None]
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    keep_audit: KeepAudit
    limits: CollectorLimits = CollectorLimits()
    _last: Collection | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self, request: CollectionRequest, by: str) -> Collection:
        """Begin a pass. Raises Conflict if one is running, Refused if no segment may be deleted
        now.
        """
        if self._last is not None and self._last.state is CollectionState.RUNNING:
            raise Conflict(
                f"a collection is running ({self._last.id}): wait for its end", reason="RUNNING"
            )
        why = self.held_back("") if request.apply else None
        if why is not None:
            raise Refused(f"no object is deleted now: {why}")
        job = Collection(self.around.ambient.new_uuid(), request, by, self.around.ambient.now_ms())
        self._last = job
        self._task = asyncio.create_task(self._run(job), name="collect garbage")
        return job

    def collection(self, id_: Uuid) -> Collection:
        """The running pass or the last one. Raises NotFound for other ids."""
        if self._last is None or self._last.id != id_:
            raise NotFound(f"this node does not know the collection {id_}: begin a new one")
        return self._last

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problem that the last pass stopped, until an operator begins a new one."""
        if self._last is None or self._last.state is not CollectionState.STOPPED:
            return ()
        text = f"the collection {self._last.id} stopped: {self._last.text}"
        return (NodeProblem(ProblemArea.DELETION, COLLECTION, text),)

    async def look_up(self, ids: Sequence[RemoteLogSegmentId]) -> list[Known]:
        """The metadata of each id, read after a barrier."""
        await self.look.barrier(deadline_s=self.limits.barrier_deadline_s)
        found = []
        for number, id_ in enumerate(ids, start=1):
            if number % LOOKS_PER_SLICE == 0:
                await self.around.ambient.sleep(0)
            found.append(self._known(id_))
        return found

    async def close(self) -> None:
        """Stop a running pass, if there is one; its deletes are not undone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._last is not None and self._last.state is CollectionState.RUNNING:
            self._end(self._last, CollectionState.FAILED, "the node is shutting down")

    async def _run(self, job: Collection) -> None:
        try:
            await self.run_pass(job)
        except StrandlineError as error:
            self._end(job, CollectionState.FAILED, str(error))
        except Exception as error:
            logger.exception("a collection failed")
            self._end(job, CollectionState.FAILED, f"{type(error).__name__}: {error}")

    async def run_pass(self, job: Collection) -> None:
        """Count all objects, then delete the orphans. Raises the errors of stores and metadata."""
        for tier in self.stores.by_name.values():
            await self._count(tier, job)
        orphans = job.found[ObjectClass.ORPHAN].objects
        if not job.request.apply:
            self._end(job, CollectionState.FINISHED, "no object was deleted: apply was not given")
            return
        allowed = objects_allowed(
            sum(job.found[each].objects for each in IN_THE_LOG),
            self.limits.delete_max_percent,
            job.request.accept_objects,
        )
        if orphans > allowed:
            await self._stop(job, orphans, allowed)
            return
        for tier in self.stores.by_name.values():
            if not await self._delete(tier, job, allowed):
                await self._stop(job, orphans, allowed)
                return
        await self.keep_audit(self._line(job, f"{job.deleted.objects} orphans deleted"))
        kept = sum(job.held_back.values())
        self._end(job, CollectionState.FINISHED, f"{kept} orphans stay for now" if kept else "")

    async def _count(self, tier: TierStore, job: Collection) -> None:
        job.by_store.setdefault(tier.name, {})
        async with aclosing(listed_pages(tier)) as pages:
            async for page in pages:
                for class_, info, _ in await self._classified(tier, page):
                    job.add(tier.name, class_, info)

    async def _classified(
        self, tier: TierStore, page: Sequence[ObjectInfo]
    ) -> list[tuple[ObjectClass, ObjectInfo, ParsedSegmentKey | None]]:
        """Classify objects after a barrier, so that copies begun since the listing are known."""
        await self.look.barrier(deadline_s=self.limits.barrier_deadline_s)
        found = []
        for number, info in enumerate(page, start=1):
            if number % LOOKS_PER_SLICE == 0:
                await self.around.ambient.sleep(0)
            key = parse_segment_key(tier.prefix, info.key)
            class_ = classify(
                info.key,
                key,
                NEVER_KNOWN if key is None else self._known(key.segment_id),
                prefix=tier.prefix,
                now_ms=self.around.ambient.now_ms(),
            )
            found.append((class_, info, key))
        return found

    def _known(self, segment_id: RemoteLogSegmentId) -> Known:
        row = self.look.find_segment(segment_id.id)
        if row is None:
            return Known(deleted=self.look.is_deleted(segment_id))
        limits = self.around.limits
        # The row has the time at which its mark was first proposed. Readers may have come until it
        # was recorded, which this process need not have seen: as long again covers late answers.
        return Known(row, delete_due_ms(row, limits) + round(2 * limits.mark_deadline_s * 1000))

    async def _delete(self, tier: TierStore, job: Collection, allowed: int) -> bool:
        """Delete the orphans of a store; False if that would be more than `allowed` in all."""
        async with aclosing(listed_pages(tier)) as pages:
            async for page in pages:
                orphans = (
                    Orphan(key, info)
                    for class_, info, key in await self._classified(tier, page)
                    if class_ is ObjectClass.ORPHAN and key is not None
                )
                for batch in _batches(orphans):
                    free = [each for each in batch if not self._is_held(each, job)]
                    if job.deleted.objects + len(free) > allowed:
                        return False
                    if free:
                        await self._delete_batch(tier, job, free)
        return True

    def _is_held(self, orphan: Orphan, job: Collection) -> bool:
        why = self._why_held(orphan)
        if why is None:
            return False
        job.held_back[why] = job.held_back.get(why, 0) + 1
        return True

    def _why_held(self, orphan: Orphan) -> str | None:
        return self.held_back(orphan.key.segment_id.partition.topic)

    async def _delete_batch(
        self, tier: TierStore, job: Collection, orphans: Sequence[Orphan]
    ) -> None:
        for segment_id, of_segment in groupby(orphans, lambda each: each.key.segment_id):
            group = list(of_segment)
            await self.keep_audit(
                AuditLine(
                    at_ms=self.around.ambient.now_ms(),
                    action=AuditAction.ORPHAN_DELETED,
                    partition=segment_id.partition,
                    segment_id=segment_id.id,
                    start_offset=group[0].key.start_offset,
                    end_offset=-1,
                    size_bytes=sum(each.info.size for each in group),
                    why=f"{len(group)} objects of a deleted segment in the store {tier.name}",
                    by=job.by,
                )
            )
        await delete_objects(
            tier,
            [each.info.key for each in orphans],
            confirm_prefix=self.confirm_prefix,
            held_back=lambda: next(filter(None, map(self._why_held, orphans)), None),
            deadline_s=self.around.limits.store_deadline_s,
            what=f"{len(orphans)} orphans",
        )
        for each in orphans:
            job.deleted.add(tier.name, each.info)

    async def _stop(self, job: Collection, orphans: int, allowed: int) -> None:
        text = (
            f"there are {orphans} objects of deleted segments, more than the {allowed} that a pass "
            f"may delete; {job.deleted.objects} were deleted. Look at them, then accept their "
            f"number with --accept-objects {orphans}"
        )
        logger.error("the collection %s stopped: %s", job.id, text)
        await self.keep_audit(self._line(job, text))
        self._end(job, CollectionState.STOPPED, text)

    def _line(self, job: Collection, why: str) -> AuditLine:
        return AuditLine(
            self.around.ambient.now_ms(), AuditAction.COLLECTION, None, None,
            -1, -1, job.deleted.size_bytes, why, job.by,
        )  # fmt: skip

    def _end(self, job: Collection, state: CollectionState, text: str) -> None:
        job.state, job.text, job.ended_at_ms = state, text, self.around.ambient.now_ms()


def _batches(orphans: Iterator[Orphan]) -> Iterator[list[Orphan]]:
    while batch := list(islice(orphans, DELETED_AT_ONCE)):
        yield batch
