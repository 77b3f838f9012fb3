"""Ownership of node ids, and the liveness of nodes. A directory that registers takes over its node
id: claims of the directory that had it before are void at once. If the process with the former
directory is still live, it contests, and then neither of them writes until one is restarted.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.kafka_uuid import Uuid
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, fenced, invalid
from rlmm.records.control_records import (
    NodeContested,
    NodeRegistration,
    NodeRemoved,
    NodeSilence,
    NodeStopped,
)
from rlmm.records.node_facts import OWN_TAGS_FROM
from rlmm.rows import keys
from rlmm.rows.feature_level import REJOINING_LEVEL
from rlmm.rows.nodes import Liveness, RegisteredNode, encode_node, find_node
from rlmm.rows.reads import read_feature_level

PAST_DIRECTORIES_MAX = 8
"""Limit of a node's past directories that are recorded. An older one is forgotten and counts as new
if it comes back: it takes over the node id, without any of its claims, and a live owner contests.
"""


def apply_node_registration(draft: Draft, record: NodeRegistration) -> Outcome:
    """Accept a registration from each later boot of a directory, from a new directory, and from a
    process whose node was removed from the list.
    """
    mine = record.incarnation
    if mine.node_id < 0 or mine.boot_counter < 0 or not any(mine.directory_id):
        return invalid(f"{mine} is not an incarnation of a node")
    if any(tag >= OWN_TAGS_FROM for tag, _ in record.unknown_tags):
        return invalid(f"a registration has no tagged field from {OWN_TAGS_FROM} on")
    known = find_node(draft.rows, mine.node_id)
    if known is None:
        _put(draft, record, ())
        return ACCEPTED
    if known.directory_id == mine.directory_id:
        if mine.boot_counter < known.boot_counter:
            return _older_life(known.boot_counter, record)
        if mine.boot_counter == known.boot_counter and not _is_back(draft, known):
            return NO_EFFECT
        again = replace(
            known,
            boot_counter=mine.boot_counter,
            boot_offset=draft.offset,
            timestamp_ms=draft.record_time_ms,
            contested=known.contested and mine.boot_counter == known.boot_counter,
            facts=record.facts,
            unknown_tags=record.unknown_tags,
            liveness=Liveness.LIVE,
            liveness_ms=None,
        )
        draft.rows.put(keys.node_key(mine.node_id), encode_node(again))
        return ACCEPTED
    before = dict(known.past).get(mine.directory_id)
    if before is not None and mine.boot_counter <= before:
        return _older_life(before, record)
    others = tuple(each for each in known.past if each[0] != mine.directory_id)
    past = ((known.directory_id, known.boot_counter), *others)
    _put(draft, record, past[:PAST_DIRECTORIES_MAX])
    return ACCEPTED


def _is_back(draft: Draft, known: RegisteredNode) -> bool:
    """True for a process that an admin removed as gone, and that registers again. Only from
    REJOINING_LEVEL on: an older release would not take it back.
    """
    level, _ = read_feature_level(draft.rows)
    return known.liveness is Liveness.REMOVED and level >= REJOINING_LEVEL


def _older_life(known: int, record: NodeRegistration) -> Outcome:
    mine = record.incarnation
    return fenced(
        f"node {mine.node_id} with directory {mine.directory_id} registered with boot counter "
        f"{known} before, but this is {mine.boot_counter}: an earlier process, or one with a copy "
        "of its directory; stop this process"
    )


def _put(draft: Draft, record: NodeRegistration, past: tuple[tuple[Uuid, int], ...]) -> None:
    mine = record.incarnation
    node = RegisteredNode(
        mine.node_id, mine.directory_id, mine.boot_counter, draft.offset, draft.offset,
        draft.record_time_ms, past=past, facts=record.facts, unknown_tags=record.unknown_tags,
    )  # fmt: skip
    draft.rows.put(keys.node_key(mine.node_id), encode_node(node))


def apply_node_contested(draft: Draft, record: NodeContested) -> Outcome:
    """Accept the record from a process that registered before, and whose node id was taken over."""
    mine = record.incarnation
    known = _registered_at(draft, mine.node_id, record.registered_offset)
    if isinstance(known, Outcome):
        return known
    if dict(known.past).get(mine.directory_id) != mine.boot_counter:
        return conflict(
            f"node {mine.node_id} with directory {mine.directory_id} and boot counter "
            f"{mine.boot_counter} was not replaced: there is nothing to contest"
        )
    if known.contested:
        return NO_EFFECT
    draft.rows.put(keys.node_key(mine.node_id), encode_node(replace(known, contested=True)))
    return ACCEPTED


def apply_node_silence(draft: Draft, record: NodeSilence) -> Outcome:
    """Accept the record only from the leader of the epoch in which it was appended: the leader of a
    later epoch, even the same node, measures the silence of nodes anew.
    """
    if record.leader_epoch != draft.epoch:
        return conflict(
            f"the silence of nodes was judged in epoch {record.leader_epoch}, but this is epoch "
            f"{draft.epoch}: its leader has to judge it again"
        )
    known = _registered_at(draft, record.node_id, record.registered_offset)
    if isinstance(known, Outcome):
        return known
    if known.liveness not in (Liveness.LIVE, Liveness.FENCED):
        return conflict(
            f"node {record.node_id} is {known.liveness.name}: its next registration brings it back"
        )
    return _become(draft, known, Liveness.FENCED if record.fenced else Liveness.LIVE)


def apply_node_stopped(draft: Draft, record: NodeStopped) -> Outcome:
    """Accept the record from the process that registered last."""
    mine = record.incarnation
    known = _registered_at(draft, mine.node_id, record.registered_offset)
    if isinstance(known, Outcome):
        return known
    if (known.directory_id, known.boot_counter) != (mine.directory_id, mine.boot_counter):
        return conflict(f"{mine} is not the process that has node id {mine.node_id}")
    return _become(draft, known, Liveness.STOPPED)


def apply_node_removed(draft: Draft, record: NodeRemoved) -> Outcome:
    """Accept the removal of a node that is not live. Its row stays, since it shows which claims of
    earlier directories are void.
    """
    known = _registered_at(draft, record.node_id, record.registered_offset)
    if isinstance(known, Outcome):
        return known
    if known.liveness is Liveness.LIVE:
        return conflict(
            f"node {record.node_id} lives: stop it, or wait until it is fenced, then remove it"
        )
    return _become(draft, known, Liveness.REMOVED)


def _registered_at(draft: Draft, node_id: int, offset: int) -> RegisteredNode | Outcome:
    known = find_node(draft.rows, node_id) if node_id >= 0 else None
    if known is None or known.boot_offset != offset:
        return conflict(
            f"the last registration of node {node_id} is not at metadata offset {offset}: read it "
            "again, then decide"
        )
    return known


def _become(draft: Draft, node: RegisteredNode, liveness: Liveness) -> Outcome:
    if node.liveness is liveness:
        return NO_EFFECT
    now = replace(node, liveness=liveness, liveness_ms=draft.record_time_ms)
    draft.rows.put(keys.node_key(node.node_id), encode_node(now))
    return ACCEPTED
