"""Carries out an erasure: waits until its segments are deleted, deletes all versions of their
objects, and reports.

    wait until no row of the scope is left (retention or the topic's deletion removes them)
      -> list the store, look each key up in the log, delete objects of deleted segments
      -> repeat until a list has nothing more to delete: the report is made from that list

It may be killed at any point and requested again: all it needs is in the log and the stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, Refused, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction, AuditLine, KeepAudit
from rlm.control.surroundings import Surroundings
from rlm.format.custom_metadata import custom_of
from rlm.format.object_keys import parse_segment_key, segment_keys
from rlm.reconcile.collection_plan import NEVER_KNOWN, ObjectClass
from rlm.reconcile.collector import Collector
from rlm.reconcile.erasure_plan import Decided, Scope, decide, why_not_ordered
from rlm.reconcile.erasure_request import ErasureRequest, ErasureState
from rlm.reconcile.unseen_stores import OF_THE_SCOPE, StoresOfErased, unseen_stores
from rlm.stores.object_deletion import delete_objects, delete_versions
from rlm.stores.tier_store import TierStore, TierStores, kept_keys, listed_pages
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.partition_state import PartitionState
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.store import KeptVersion, ObjectInfo

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
LOOKS_REST = 9.0
"""Factor of the pause after a scan of the rows to its duration: there may be a million rows."""
SWEEPS_MAX = 5
"""Limit of the sweeps of a store, in case that new objects keep appearing."""
SHOWN_MAX = 1_000
"""Limit of the objects that a report names; all are counted."""
EXPECTED_KEYS_MAX = 100_000
"""Limit of the keys that are remembered for the report as gone or left."""
UNKNOWN = "the log does not know its segment, or forgot it 30 days after its deletion"
ROWS_PER_BREATH = 128
DELETED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class LeftObject:
    """An object, or a version of it (`version_id`), that still exists, and the reason."""

    store: str
    key: str
    version_id: str | None
    why: str


@dataclass(slots=True)
class Swept:
    """One sweep of a store: a list, and the deletes by it. `left` has the first of `left_count`."""

    store: str
    objects: int = 0
    versions: int = 0
    markers: int = 0
    size_bytes: int = 0
    deleted: int = 0
    listed: bool = False
    versions_unknown: str | None = None
    kept: dict[ObjectClass, int] = field(default_factory=dict)
    left_count: int = 0
    left: list[LeftObject] = field(default_factory=list)
    left_keys: set[str] = field(default_factory=set)

    def note(self, decided: Mapping[str, Decided], *, applied: bool) -> None:
        """Count the keys that stay. If the sweep is `applied`, those of the scope are left over."""
        for key, each in decided.items():
            if each.takes:
                continue
            self.kept[each.class_] = self.kept.get(each.class_, 0) + 1
            if each.class_ is ObjectClass.FOREIGN:
                self.leave(key, None, UNKNOWN)
            elif each.will and applied:
                self.leave(key, None, "its segment is still recorded")

    def leave(self, key: str, version_id: str | None, why: str) -> None:
        """Report an object or version that still exists."""
        self.left_count += 1
        if len(self.left) < SHOWN_MAX:
            self.left.append(LeftObject(self.store, key, version_id, why))
        if len(self.left_keys) < EXPECTED_KEYS_MAX:
            self.left_keys.add(key)


@dataclass(slots=True)
class StoreErasure:
    """The result for one store. `objects`, `versions` and `markers` were deleted; without `apply`
    they would be. `kept` counts the keys in the scope that stay, by class. `trouble`: why the store
    was not swept to the end. `versions_unknown`: why its versions were not listed.
    """

    objects: int = 0
    versions: int = 0
    markers: int = 0
    size_bytes: int = 0
    kept: dict[ObjectClass, int] = field(default_factory=dict)
    trouble: str | None = None
    versions_unknown: str | None = None

    def add(self, swept: Swept) -> None:
        """Add a sweep; `kept` is that of the last sweep."""
        self.objects += swept.objects
        self.versions += swept.versions
        self.markers += swept.markers
        self.size_bytes += swept.size_bytes
        self.kept, self.versions_unknown = swept.kept, swept.versions_unknown


@dataclass(slots=True)
class Erasure:
    """One run and its result. `segments` and `size_bytes`: in the scope at its start. `waiting`:
    segments not deleted yet. `kept_to_offset`: the end of the segment that contains `before`, -1 if
    there is none. `gone`: keys, as `store:key`, that are in no list any more, of stores whose
    versions were listed. `is_told`: the last line of its audit is written, or being written.
    """

    id: Uuid
    request: ErasureRequest
    by: str
    started_at_ms: int
    state: ErasureState = ErasureState.RUNNING
    ended_at_ms: int = -1
    text: str = ""
    segments: int = 0
    size_bytes: int = 0
    waiting: int = 0
    kept_to_offset: int = -1
    stores: dict[str, StoreErasure] = field(default_factory=dict)
    gone_count: int = 0
    gone: list[str] = field(default_factory=list)
    left_count: int = 0
    left: list[LeftObject] = field(default_factory=list)
    expected: dict[str, None] = field(default_factory=dict)
    is_told: bool = False

    def expect(self, store: str, keys: Iterable[str]) -> None:
        """Remember keys, to report them as gone at the end."""
        for key in keys:
            if len(self.expected) < EXPECTED_KEYS_MAX:
                self.expected[f"{store}:{key}"] = None

    def forget(self, store: str) -> None:
        """Forget the keys of a store that was not swept to the end, so none is reported as gone."""
        self.expected = {key: None for key in self.expected if not key.startswith(f"{store}:")}


@dataclass(slots=True)
class Erasures:
    """Runs erasures, one at a time, and keeps the last one. `held_back` returns the reason why no
    segment of a topic may be deleted now, or None. `collector` looks segments up.
    """

    collector: Collector
    metadata: MetadataReads
    stores: TierStores
    around: Surroundings
    _: KW_ONLY
    held_back: Callable[[str], str | None]
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    keep_audit: KeepAudit
    _erased: StoresOfErased = field(default_factory=StoresOfErased, init=False)
    _last: Erasure | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self, request: ErasureRequest, by: str) -> Erasure:
        """Begin a run. Raises Conflict if one is running, or if no deletion was ordered
        (NOT_ORDERED); NotFound if the partition is unknown; Refused if deletes are held back now.
        """
        self._check_free()
        await self.collector.look_up(())  # waits until the view has all earlier orders
        self._check_free()
        scope = request.scope
        if request.apply:
            states = self._states(scope)
            if scope.before is not None and not states:
                raise NotFound(f"{scope} is not in the metadata, so it has no tiered data")
            why = why_not_ordered(scope, states)
            if why is not None:
                raise Conflict(why, reason="NOT_ORDERED")
            held = self.held_back(scope.topic)
            if held is not None:
                raise Refused(f"no object is deleted now: {held}")
        ambient = self.around.ambient
        job = Erasure(ambient.new_uuid(), request, by, ambient.now_ms())
        self._last = job
        self._task = asyncio.create_task(self._run(job), name="erase")
        return job

    def _check_free(self) -> None:
        if self._last is not None and self._last.state is ErasureState.RUNNING:
            raise Conflict(
                f"an erasure is running ({self._last.id}): wait for its end", reason="RUNNING"
            )

    def erasure(self, id_: Uuid) -> Erasure:
        """The running erasure or the last one. Raises NotFound for other ids."""
        if self._last is None or self._last.id != id_:
            raise NotFound(f"this node does not know the erasure {id_}: request it again")
        return self._last

    async def close(self) -> None:
        """Stop a running erasure and collection, if there are any; their deletes are not undone."""
        await self.collector.close()
        task, self._task = self._task, None
        if task is not None:
            if self._last is None or not self._last.is_told:  # else it is about to end
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._last is not None and self._last.state is ErasureState.RUNNING:
            text = "the node is shutting down: request the erasure again"
            with suppress(StrandlineError):
                if not self._last.is_told:
                    await self._tell_end(self._last, text)
            self._end(self._last, ErasureState.FAILED, text)

    async def _run(self, job: Erasure) -> None:
        again = "request the erasure again, it continues"
        try:
            async with asyncio.timeout(job.request.deadline_s):
                state, text = await self.run(job)
        except TimeoutError:
            waited = f"after {job.request.deadline_s:g} s {job.waiting} segments are left"
            state, text = ErasureState.INCOMPLETE, f"{waited}: {again}"
        except StrandlineError as error:
            state, text = ErasureState.FAILED, f"{error}; {again}"
        except Exception as error:
            logger.exception("an erasure failed")
            state, text = ErasureState.FAILED, f"{type(error).__name__}: {error}; {again}"
        try:
            await self._tell_end(job, text)
        except StrandlineError as error:
            state, text = ErasureState.FAILED, f"{error}; {again}"
        self._end(job, state, text)

    async def run(self, job: Erasure) -> tuple[ErasureState, str]:
        """Do all steps. Raises the errors of the metadata; those of a store are in the report."""
        request = job.request
        await self._count(job)
        if request.apply:
            await self.keep_audit(self._line(job, f"begins: {request.why}"))
            why_not = await self._wait(job)
            if why_not is not None:
                return ErasureState.INCOMPLETE, why_not
        for tier in self.stores.by_name.values():
            job.stores[tier.name] = StoreErasure()
            try:
                await self._erase(tier, job)
            except StrandlineError as error:
                job.stores[tier.name].trouble = str(error)
            if job.stores[tier.name].trouble or job.stores[tier.name].versions_unknown:
                job.forget(tier.name)
        await self._tell_unseen(job)
        if not request.apply:
            return ErasureState.FINISHED, "no object was deleted: apply was not given"
        job.gone_count, job.gone = len(job.expected), list(job.expected)[:SHOWN_MAX]
        text = _why_incomplete(job)
        return ErasureState.INCOMPLETE if text else ErasureState.FINISHED, text

    async def _tell_end(self, job: Erasure, text: str) -> None:
        """Write the last line of the audit of a run that may delete."""
        job.is_told = True
        if job.request.apply:
            said = f"not finished: {text}" if text else f"ended: {job.gone_count} objects are gone"
            await self.keep_audit(self._line(job, said))

    async def _tell_unseen(self, job: Erasure) -> None:
        """Report the stores that were not swept, including those of segments deleted before."""
        unseen = await unseen_stores(
            self.metadata, self.stores.by_name, partial(self.around.ambient.sleep, 0)
        )
        erased = self._erased.of(job.request.scope)
        for name, why in (unseen | erased | dict(job.request.elsewhere)).items():
            if name not in self.stores.by_name:
                job.stores.setdefault(name, StoreErasure(trouble=why))

    def _states(self, scope: Scope) -> list[PartitionState]:
        states = (
            self.metadata.partition_state(tip)
            for tip in list(self.metadata.partitions())
            if scope.has(tip)
        )
        return [state for state in states if state is not None]

    async def _rows(self, scope: Scope) -> AsyncGenerator[RemoteLogSegmentMetadata, None]:
        for state in self._states(scope):
            for number, row in enumerate(self.metadata.list_remote_log_segments(state.partition)):
                if number % ROWS_PER_BREATH == 0:
                    await self.around.ambient.sleep(0)
                yield row

    async def _count(self, job: Erasure) -> None:
        scope = job.request.scope
        async for row in self._rows(scope):
            if scope.takes(row):
                job.segments, job.size_bytes = job.segments + 1, job.size_bytes + row.size_bytes
                for tier in self._stores_of(job, row):
                    keys = segment_keys(tier.prefix, row.segment_id, row.start_offset)
                    job.expect(tier.name, keys.all())
            elif scope.spans(row):
                job.kept_to_offset = max(job.kept_to_offset, row.end_offset)

    def _stores_of(self, job: Erasure, row: RemoteLogSegmentMetadata) -> Sequence[TierStore]:
        """The stores of a row, as for a clean-up; a store that the settings lack is reported."""
        custom = custom_of(row.custom_metadata)
        if custom is None:
            return self.stores.default_first
        tier = self.stores.by_name.get(custom.store)
        if tier is None:
            job.stores[custom.store] = StoreErasure(trouble=OF_THE_SCOPE)
            self._erased.note(row.segment_id.partition, custom.store)
            return ()
        return (tier,)

    async def _wait(self, job: Erasure) -> str | None:
        """Wait until no segment of the scope has a row; or return why the wait was given up."""
        scope, ambient = job.request.scope, self.around.ambient
        while True:
            await self.collector.look_up(())
            states = self._states(scope)
            held = self.held_back(scope.topic)
            if held is not None:
                return f"no object is deleted now: {held}; request the erasure again after that"
            why = why_not_ordered(scope, states)
            if why is not None:
                return f"the order to delete was withdrawn: {why}"
            began_s = ambient.monotonic()
            job.waiting = sum([scope.takes(row) async for row in self._rows(scope)])
            if not job.waiting and (scope.before is not None or not states):
                return None
            took_s = ambient.monotonic() - began_s
            await ambient.sleep(max(LOOK_EVERY_S, LOOKS_REST * took_s))

    async def _erase(self, tier: TierStore, job: Erasure) -> None:
        """Sweep a store until its list has nothing more to delete."""
        store = job.stores[tier.name]
        for _ in range(SWEEPS_MAX):
            swept = await self._sweep(tier, job)
            store.add(swept)
            if not swept.deleted or not job.request.apply:
                break
        else:
            swept.leave("", None, "new objects keep appearing")
        job.left_count += swept.left_count
        job.left += swept.left[: SHOWN_MAX - len(job.left)]
        for key in swept.left_keys:
            job.expected.pop(f"{tier.name}:{key}", None)

    async def _sweep(self, tier: TierStore, job: Erasure) -> Swept:
        """List a store once and delete. In a store with versions their list is the result."""
        start = job.request.scope.start_of_keys(tier.prefix)
        deadline_s = self.around.limits.store_deadline_s
        objects, kept = Swept(tier.name), Swept(tier.name)
        async with aclosing(listed_pages(tier, start, deadline_s=deadline_s)) as pages:
            async for page in pages:
                await self._sweep_objects(tier, job, page, objects)
        async with aclosing(_versions(tier, start, deadline_s, kept)) as pages_of_keys:
            async for versions in pages_of_keys:
                await self._sweep_versions(tier, job, versions, kept)
        if not kept.listed:
            objects.versions_unknown = kept.versions_unknown
            return objects
        kept.objects = objects.objects
        kept.deleted += objects.deleted
        return kept

    async def _sweep_objects(
        self, tier: TierStore, job: Erasure, page: Sequence[ObjectInfo], swept: Swept
    ) -> None:
        decided = await self._decided(tier, job, [info.key for info in page])
        swept.note(decided, applied=job.request.apply)
        going = [each for each in page if self._goes(job, decided.get(each.key))]
        if job.request.apply:
            for at in range(0, len(going), DELETED_AT_ONCE):
                some = [each.key for each in going[at : at + DELETED_AT_ONCE]]
                await self._delete_objects(tier, job, some)
                job.expect(tier.name, some)
        swept.listed = swept.listed or bool(page)
        swept.objects += len(going)
        swept.deleted += len(going)
        swept.size_bytes += sum(each.size for each in going)

    async def _sweep_versions(
        self, tier: TierStore, job: Erasure, versions: Sequence[KeptVersion], swept: Swept
    ) -> None:
        decided = await self._decided(tier, job, list({each.key: None for each in versions}))
        swept.note(decided, applied=job.request.apply)
        going = [each for each in versions if self._goes(job, decided.get(each.key))]
        refused: dict[KeptVersion, str] = {}
        if job.request.apply and going:
            refused = await self._delete_versions(tier, job, going)
            job.expect(tier.name, {each.key: None for each in going})
        for each, why in refused.items():
            swept.leave(each.key, each.version_id, why)
        gone = [each for each in going if each not in refused]
        swept.listed = swept.listed or bool(versions)
        swept.deleted += len(gone)
        swept.markers += sum(each.is_marker for each in gone)
        swept.versions += sum(not each.is_marker for each in gone)
        swept.size_bytes += sum(each.size for each in gone)

    def _goes(self, job: Erasure, decided: Decided | None) -> bool:
        """True if the key is deleted; without `apply`, if it would be."""
        return decided is not None and (decided.takes or (decided.will and not job.request.apply))

    async def _decided(
        self, tier: TierStore, job: Erasure, keys: Sequence[str]
    ) -> dict[str, Decided]:
        """The decisions on those keys that are in the scope, looked up after a barrier."""
        parsed = {key: parse_segment_key(tier.prefix, key) for key in keys}
        ids = {each.segment_id: None for each in parsed.values() if each is not None}
        known = dict(zip(ids, await self.collector.look_up(tuple(ids)), strict=True))
        found = {}
        for key, each in parsed.items():
            about = NEVER_KNOWN if each is None else known[each.segment_id]
            decided = decide(job.request.scope, key, each, about, prefix=tier.prefix)
            if decided is not None:
                found[key] = decided
        return found

    async def _delete_objects(self, tier: TierStore, job: Erasure, keys: Sequence[str]) -> None:
        await self.keep_audit(self._line(job, f"{len(keys)} objects in the store {tier.name}"))
        await delete_objects(
            tier,
            keys,
            confirm_prefix=self.confirm_prefix,
            held_back=lambda: self.held_back(job.request.scope.topic),
            deadline_s=self.around.limits.store_deadline_s,
            what=f"{len(keys)} objects",
        )

    async def _delete_versions(
        self, tier: TierStore, job: Erasure, versions: Sequence[KeptVersion]
    ) -> dict[KeptVersion, str]:
        what = f"{len(versions)} versions"
        await self.keep_audit(self._line(job, f"{what} in the store {tier.name}"))
        return await delete_versions(
            tier,
            versions,
            confirm_prefix=self.confirm_prefix,
            held_back=lambda: self.held_back(job.request.scope.topic),
            deadline_s=self.around.limits.store_deadline_s,
            what=what,
        )

    def _line(self, job: Erasure, why: str) -> AuditLine:
        scope = job.request.scope
        states = self._states(scope) if scope.partition is not None else []
        tip = states[0].partition if states else None
        end = -1 if scope.before is None else scope.before - 1
        return AuditLine(
            self.around.ambient.now_ms(), AuditAction.ERASURE, tip, None, -1, end,
            job.size_bytes, f"erasure of {scope}: {why}", job.by,
        )  # fmt: skip

    def _end(self, job: Erasure, state: ErasureState, text: str) -> None:
        job.state, job.text, job.ended_at_ms = state, text, self.around.ambient.now_ms()


async def _versions(
    tier: TierStore, start: str, deadline_s: float, swept: Swept
) -> AsyncGenerator[tuple[KeptVersion, ...], None]:
    """The versions, in pages; `swept.versions_unknown` has the reason if the store refuses."""
    try:
        async with aclosing(kept_keys(tier, start, deadline_s=deadline_s)) as pages:
            async for versions in pages:
                yield versions
    except (Refused, InvalidRequest) as error:
        swept.versions_unknown = str(error)


def _why_incomplete(job: Erasure) -> str:
    """One line about objects that are left, or may be; empty if there are none."""
    parts = [
        f"the store {name}: {each.trouble}" for name, each in job.stores.items() if each.trouble
    ]
    parts += [
        f"the versions in the store {name} are unknown: {each.versions_unknown}"
        for name, each in job.stores.items()
        if each.versions_unknown
    ]
    if job.left_count:
        parts.append(f"{job.left_count} objects or versions are left, such as {job.left[0].key}")
    return "; ".join(parts)
