"""`<prefix>_strandline/cluster.json` names the cluster that owns a prefix. Created once.

Two clusters under one prefix would each treat the other's objects as garbage. So a node refuses to
start if the marker names a different cluster, and reads it again before it writes or deletes. Only
a cluster started anew from a snapshot takes a prefix over: it replaces the marker by
compare-and-set and names its predecessors in it, so that their nodes no longer use the prefix.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import AlreadyExists, Conflict, CorruptData, NotFound, Refused, RetryLater
from rlm.control.surroundings import Identity
from rlm.format.json_fields import Fields
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.tier_store import TierStore

logger = logging.getLogger(__name__)

VERSION = 1
MARKER_BYTES_MAX = 64 * 1024
TEXT_CHARACTERS_MAX = 200
PREDECESSORS_MAX = 100
"""The most predecessors that a marker keeps; the oldest are dropped first."""
DAMAGED = (
    "this object names the owner of the prefix. Find out what overwrote it; unless a different "
    "Strandline cluster took the prefix over, keep it elsewhere and remove it, and the next start "
    "or format makes it anew, or says what to put there"
)


@dataclass(frozen=True, slots=True)
class ClusterMarker:
    """The content of a marker. `kafka_cluster_id` None: the node that wrote it did not know it.

    `predecessors` are the clusters that owned the prefix before, latest first. `store` is the
    store's name, by which two exchanged stores of one cluster are noticed; None: any. `began_with`
    names the predecessor's snapshot that this cluster began with, and its checksum; None: it began
    empty.
    """

    cluster_id: str
    kafka_cluster_id: str | None
    predecessors: tuple[str, ...] = ()
    store: str | None = None
    began_with: str | None = None

    @classmethod
    def of(cls, identity: Identity, tier: TierStore) -> ClusterMarker:
        """The marker of this cluster in the store `tier`."""
        return cls(identity.cluster_id, identity.kafka_cluster_id, store=tier.name)

    def encode(self) -> bytes:
        return json.dumps(self._fields(), indent=2).encode() + b"\n"

    def on_a_line(self) -> str:
        """The marker on one line, for an operator to write by hand."""
        return json.dumps(self._fields())

    def _fields(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "version": VERSION,
            "clusterId": self.cluster_id,
            "kafkaClusterId": self.kafka_cluster_id,
        }
        if self.store is not None:
            fields["store"] = self.store
        if self.predecessors:
            fields["predecessorClusterIds"] = list(self.predecessors)
        if self.began_with is not None:
            fields["beganWith"] = self.began_with
        return fields

    @classmethod
    def decode(cls, data: bytes, *, source: str) -> ClusterMarker:
        """Decode a marker. CorruptData for anything that `encode` does not write."""
        try:
            fields = Fields(json.loads(data), source, "")
        except (ValueError, RecursionError):
            raise CorruptData("not JSON", source=source, position=0) from None
        fields.integer("version", minimum=VERSION, maximum=VERSION)
        before = fields.texts("predecessorClusterIds")
        if len(before) > PREDECESSORS_MAX:
            raise fields.wrong("predecessorClusterIds", f"has more than {PREDECESSORS_MAX} ids")
        found = cls(
            fields.text("clusterId"),
            fields.optional_text("kafkaClusterId"),
            before,
            fields.optional_text("store"),
            fields.optional_text("beganWith"),
        )
        texts = (found.cluster_id, found.kafka_cluster_id, found.store, found.began_with, *before)
        if not all(_can_be_shown(each) for each in texts if each is not None):
            raise CorruptData(
                "a text in it is too long or not printable", source=source, position=0
            )
        return found

    def successor(
        self, cluster_id: str, kafka_cluster_id: str | None, *, began_with: str
    ) -> ClusterMarker:
        """The marker of the cluster that takes over from this one."""
        before = (self.cluster_id, *self.predecessors)[:PREDECESSORS_MAX]
        return ClusterMarker(cluster_id, kafka_cluster_id, before, self.store, began_with)


def _can_be_shown(text: str) -> bool:
    """True if the text is short and printable, so that messages and logs can show it."""
    return len(text) <= TEXT_CHARACTERS_MAX and text.isprintable()


async def may_be_new() -> None:
    """The check for callers that know no history: any store may be new."""


async def claim_prefix(
    tier: TierStore,
    identity: Identity,
    *,
    deadline_s: float,
    check_may_be_new: Callable[[], Awaitable[None]] = may_be_new,
) -> None:
    """Write the marker, or check the existing one. `check_may_be_new` raises if a missing marker is
    a fault.

    Refused: the marker is a different cluster's, or the store takes no writes. RetryLater: the
    marker names a different store of this cluster, or no answer came in time. InvalidRequest: the
    bucket is missing. The store's other errors are raised as they are.
    """
    try:
        async with asyncio.timeout(deadline_s):
            await _claim(tier, identity, check_may_be_new)
    except TimeoutError:
        raise _no_answer(tier, deadline_s) from None


def _no_answer(tier: TierStore, deadline_s: float) -> RetryLater:
    return RetryLater(
        f"the store {tier.name!r} did not answer within {deadline_s:g} s while its cluster "
        "marker was read: check its endpoint and the network"
    )


def ignore_shut_out(_why: str) -> None:
    """Does nothing, for callers that end by the error alone."""


async def confirm_prefix(
    tier: TierStore,
    identity: Identity,
    *,
    deadline_s: float,
    on_shut_out: Callable[[str], None] = ignore_shut_out,
) -> None:
    """Read the marker again before writing or deleting; it must still be this cluster's.

    Refused: it is gone, or a different cluster's; then `on_shut_out` is called with the reason,
    because this node has to stop. RetryLater and Refused as in `claim_prefix`.
    """
    found = await _marker_in_time(tier, deadline_s)
    where = _where(tier)
    if found is None:
        raise Refused(
            f"{where} is gone, so the owner of the prefix is unknown: nothing is written or "
            "deleted there. Check that this is the right store; if it is and has its "
            "segments, a node writes the marker again at its start"
        )
    ours = ClusterMarker(identity.cluster_id, identity.kafka_cluster_id)
    try:
        check_marker(found, ours, where=where)
    except Refused as error:
        on_shut_out(str(error))
        raise
    _check_store(found, tier)


async def take_over(
    tier: TierStore, before: ClusterMarker, after: ClusterMarker, *, deadline_s: float
) -> None:
    """Replace the marker `before` by `after`. Conflict: the marker has changed in between."""
    key = cluster_marker_key(tier.prefix)
    data = after.encode()
    try:
        async with asyncio.timeout(deadline_s):
            # Head first: if the marker is replaced in between, its new content is read, but the
            # tag is the old one, so that the store refuses the write.
            info = await tier.store.head(key)
            if await read_marker(tier) != before:
                raise Conflict(
                    f"{key} in the store {tier.name!r} changed meanwhile: a different cluster "
                    "takes the prefix over. Nothing was written; check which is to own it",
                    reason="CHANGED",
                )
            await tier.store.replace(key, data, crc32c=crc32c(data), etag=info.etag)
    except TimeoutError:
        raise _no_answer(tier, deadline_s) from None


async def follow_takeover(
    tier: TierStore,
    stores: Iterable[TierStore],
    identity: Identity,
    *,
    deadline_s: float,
    confirmed: bool,
) -> str | None:
    """Take over a store whose marker names a cluster that this cluster has replaced, as the marker
    of one of `stores` proves: the store was not in the settings, or unreachable, when this cluster
    began. No other store changes. Returns the predecessor; None if nothing was taken over.

    Refused, with an instruction: `confirmed` is false, and a node of the predecessor may still run.
    Other errors as in `take_over`, except Conflict: a different node of this cluster was faster,
    or the marker names the cluster that was.
    """
    before = await _marker_in_time(tier, deadline_s)
    ours = ClusterMarker(identity.cluster_id, identity.kafka_cluster_id)
    if before is None or ours.cluster_id in (before.cluster_id, *before.predecessors):
        return None
    known = before.kafka_cluster_id, ours.kafka_cluster_id
    if None not in known and known[0] != known[1]:
        return None
    # A default store added after the takeover has a marker without predecessors.
    for each in stores:
        own = None if each.name == tier.name else await _marker_in_time(each, deadline_s)
        if own is None or own.cluster_id != ours.cluster_id or own.began_with is None:
            continue
        if before.cluster_id in own.predecessors:
            if not confirmed:
                raise Refused(_left_behind(tier, before))
            kafka = ours.kafka_cluster_id or before.kafka_cluster_id
            after = before.successor(ours.cluster_id, kafka, began_with=own.began_with)
            with suppress(Conflict):
                await take_over(tier, before, after, deadline_s=deadline_s)
                logger.warning(
                    "the store %r was still the Strandline cluster %s's, from which this one took "
                    "over: it is taken over, too",
                    tier.name, before.cluster_id,
                )  # fmt: skip
                return before.cluster_id
            return None
    return None


def _left_behind(tier: TierStore, marker: ClusterMarker) -> str:
    """The refusal: the predecessor may still run, as when this cluster is a drill on a copy."""
    return (
        f"{_where(tier)} belongs to the Strandline cluster {marker.cluster_id}, from which this "
        "one took over other stores: that store was not in the settings then, or away. If no node "
        "of that cluster is left, stop this node and take it over as well: `strandline reconcile "
        f"--take-over {tier.name}`. Else correct bucket and prefix of [stores.{tier.name}]"
    )


async def _marker_in_time(tier: TierStore, deadline_s: float) -> ClusterMarker | None:
    try:
        async with asyncio.timeout(deadline_s):
            return await read_marker(tier)
    except TimeoutError:
        raise _no_answer(tier, deadline_s) from None


async def check_settled(
    tier: TierStore, *, settle_s: float, now_ms: Callable[[], int], deadline_s: float
) -> None:
    """Check the marker's age; RetryLater until it is `settle_s` old.

    A node of the predecessor may have read the old marker, and deletes until its deadline for both
    has passed. Objects that it still deletes must not be counted as present.
    """
    try:
        async with asyncio.timeout(deadline_s):
            info = await tier.store.head(cluster_marker_key(tier.prefix))
    except TimeoutError:
        raise _no_answer(tier, deadline_s) from None
    if info.last_modified_ms is None:
        return
    left_s = settle_s - (now_ms() - info.last_modified_ms) / 1000
    if left_s > 0:
        raise RetryLater(
            f"the prefix in the store {tier.name!r} was taken over a moment ago: requests of the "
            f"predecessor's nodes may still be under way, try again in {ceil(left_s)} s",
            retry_after_ms=round(left_s * 1000),
        )


async def _claim(
    tier: TierStore, identity: Identity, check_may_be_new: Callable[[], Awaitable[None]]
) -> None:
    key = cluster_marker_key(tier.prefix)
    ours = ClusterMarker.of(identity, tier)
    found = await read_marker(tier)
    if found is None:
        await check_may_be_new()
        data = ours.encode()
        try:
            await tier.store.put(key, data, crc32c=crc32c(data), create_only=True)
        except AlreadyExists:
            # A different node was faster, or an earlier try of this put succeeded: read it.
            found = await read_marker(tier)
        else:
            return
    where = _where(tier)
    if found is None:
        raise RetryLater(f"{where} is reported to exist but cannot be found: start the node again")
    check_marker(found, ours, where=where)
    _check_store(found, tier)


def _where(tier: TierStore) -> str:
    return f"{cluster_marker_key(tier.prefix)} in the store {tier.name!r}"


def _check_store(found: ClusterMarker, tier: TierStore) -> None:
    """Check that the marker is this store's. RetryLater if two stores of the cluster were
    exchanged: an operator may correct that.
    """
    if found.store not in (None, tier.name):
        raise RetryLater(
            f"{_where(tier)} is that of this cluster's store {found.store!r}: nothing is written "
            "or deleted there. Check whether the mounts, or bucket, prefix and endpoint of "
            f"[stores.{tier.name}] and [stores.{found.store}] were exchanged"
        )


def check_marker(found: ClusterMarker, ours: ClusterMarker, *, where: str) -> None:
    """Raise Refused unless both markers name one cluster. An unknown Kafka cluster id fits any."""
    if ours.cluster_id in found.predecessors:
        raise Refused(
            f"{where}: the Strandline cluster {found.cluster_id} took this prefix over from "
            f"{ours.cluster_id}, to which this node belongs. Stop this node for good, keep its "
            "data directory aside, and format a new one for the new cluster"
        )
    if found.cluster_id != ours.cluster_id:
        raise Refused(
            f"{where} belongs to the Strandline cluster {found.cluster_id}, this node to "
            f"{ours.cluster_id}. If this node ran in that cluster and was formatted anew, its data "
            "directory is lost or not mounted: mount it, or begin from the snapshot (disaster "
            "recovery). Else give this cluster a prefix of its own ([stores.NAME] prefix)"
        )
    known = (found.kafka_cluster_id, ours.kafka_cluster_id)
    if None not in known and found.kafka_cluster_id != ours.kafka_cluster_id:
        raise Refused(
            f"{where} was written for the Kafka cluster {found.kafka_cluster_id}, this node "
            f"serves {ours.kafka_cluster_id}: one Strandline cluster serves one Kafka cluster"
        )


async def read_marker(tier: TierStore) -> ClusterMarker | None:
    """The marker; None if there is none. CorruptData, with an instruction, if it is damaged."""
    key = cluster_marker_key(tier.prefix)
    data = bytearray()
    try:
        async for piece in tier.store.get(key, end=MARKER_BYTES_MAX):
            data += piece
    except NotFound:
        return None
    try:
        return ClusterMarker.decode(bytes(data), source=f"{tier.name}:{key}")
    except CorruptData as error:
        raise CorruptData(
            f"{error.detail}: {DAMAGED}", source=error.source, position=error.position
        ) from None
