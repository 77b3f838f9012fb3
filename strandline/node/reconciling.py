"""`strandline reconcile`: compares the metadata with the stores, and records missing segments.

It opens the node's own data directory, so the node must not run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

from kafka_formats.errors import Conflict, InvalidRequest, OutcomeUnknown, RetryLater
from rlm.control.audit import AuditAction, AuditLine, KeepAudit
from rlm.control.surroundings import CopyLimits, Identity
from rlm.node_files.audit_log import DIRECTORY_NAME as AUDIT_DIRECTORY
from rlm.node_files.audit_log import AuditLog
from rlm.reconcile.reconciliation import Comparison, compare
from rlm.stores.clock_check import clock_trouble
from rlm.stores.cluster_marker import check_settled, confirm_prefix, follow_takeover
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Restart
from rlmm.records.control_records import Reconciled, RestartRecord, SegmentMissing
from strandline.node import ambient, event_loop
from strandline.node.node import opened_metadata
from strandline.settings.settings import Settings

STORE_DEADLINE_S = 60.0
CATCH_UP_DEADLINE_S = 120.0  # a node that was just formatted fetches all rows first
RECORD_ATTEMPTS_MAX = 10
RECORD_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """The result of `reconcile`. `restart` is None if the metadata was not restarted from a
    snapshot; there is nothing to record then. `recorded`: the missing segments were recorded.
    """

    restart: Restart | None
    comparison: Comparison
    recorded: bool


async def reconcile(
    settings: Settings,
    *,
    record: bool,
    accept_missing: int | None,
    take_over: Collection[str] = (),
) -> ReconcileReport:
    """Compare the metadata with the stores; with `record`, record missing segments and allow
    deletes again. `take_over` names stores whose marker is still that of the lost cluster, of which
    no node is left.

    Raises InvalidRequest if a store to take over is not in the settings or is the default store, or
    if `record` is given and the metadata was not restarted; Conflict if the number of missing
    segments is not `accept_missing`, or if a store with finished segments is not in the settings;
    RetryLater if no majority of the quorum runs.
    """
    async with AsyncExitStack() as opened:
        directory, metadata, stores = await opened.enter_async_context(opened_metadata(settings))
        # A view that lags lacks rows, whose segments would not be compared.
        await metadata.catch_up(deadline_s=CATCH_UP_DEADLINE_S)
        identity = Identity(
            str(directory.cluster_id), directory.kafka_cluster_id, directory.incarnation
        )
        for name in take_over:
            if name not in stores.by_name or name == stores.default_name:
                raise InvalidRequest(
                    f"{name!r} is not a store besides the default store: give one of "
                    f"{sorted({*stores.by_name} - {stores.default_name})}",
                    field="--take-over",
                )
        audit = AuditLog(directory.path / AUDIT_DIRECTORY, sleep=ambient.sleep)
        opened.push_async_callback(audit.close)
        by = f"node {directory.node_id}, reconcile"
        for tier in stores.by_name.values():
            if tier is not stores.default:
                await _follow(tier, stores, identity, tier.name in take_over, audit.keep, by)
            # In the prefix of a different cluster all of this cluster's objects would be missing.
            await confirm_prefix(tier, identity, deadline_s=STORE_DEADLINE_S)
        restart = metadata.restart()
        if record and restart is None:
            raise InvalidRequest(
                "the metadata was not restarted from a snapshot, so there is nothing to record: "
                "run the command without --apply for a comparison",
                field="--apply",
            )
        if record:
            await _check_settled(settings, stores, directory.node_id)
        found = await compare(metadata, stores, breathe=lambda: ambient.sleep(0))
        if record and restart is not None:
            _check_all_listed(found)
            _check_accepted(found, accept_missing)
            await _record(metadata, restart, found, audit.keep, by)
            restart = metadata.restart()
        return ReconcileReport(restart, found, record)


async def _follow(
    tier: TierStore,
    stores: TierStores,
    identity: Identity,
    confirmed: bool,
    keep_audit: KeepAudit,
    by: str,
) -> None:
    """Take over a store that was not in the settings when this cluster began, if `confirmed`."""
    lost = await follow_takeover(
        tier, stores.default_first, identity, deadline_s=STORE_DEADLINE_S, confirmed=confirmed
    )
    if lost is not None:
        why = f"from the cluster {lost}, which still had it; stores: {tier.name}"
        action = AuditAction.PREFIX_TAKEN_OVER
        await keep_audit(AuditLine(ambient.now_ms(), action, None, None, -1, -1, -1, why, by))


async def _check_settled(settings: Settings, stores: TierStores, node_id: int) -> None:
    """Raise RetryLater unless the clocks agree and the takeover is old enough: its age is this
    node's clock minus the store's time of the marker.
    """
    limit_ms = round(CopyLimits().clock_difference_max_s * 1000)
    for tier in stores.by_name.values():
        trouble = await clock_trouble(
            tier, node_id, ambient.now_ms, limit_ms, deadline_s=STORE_DEADLINE_S
        )
        if trouble is not None:
            raise RetryLater(f"no segment was recorded as missing: {trouble}")
        await check_settled(
            tier,
            settle_s=settings.copier.takeover_settle_s,
            now_ms=ambient.now_ms,
            deadline_s=STORE_DEADLINE_S,
        )


def _check_all_listed(found: Comparison) -> None:
    for store, rows in sorted(found.unlisted.items()):
        raise Conflict(
            f"{rows} segments are in the store {store!r}, which is not in the settings, so it is "
            f"not known if they are missing. Add [stores.{store}] and run the command again",
            reason="STORE",
        )


def _check_accepted(found: Comparison, accepted: int | None) -> None:
    missing = len(found.missing)
    if missing != (accepted or 0):
        raise Conflict(
            f"{missing} segments of the snapshot are not whole in the store, and you accept "
            f"{accepted or 0}. Look at the list: once they are recorded as missing, their offsets "
            "are lost to the tier (or below its log start). If that is right, give "
            f"--accept-missing {missing}",
            reason="MISSING",
        )


async def _record(
    metadata: RemoteLogMetadataManager,
    restart: Restart,
    found: Comparison,
    keep_audit: KeepAudit,
    by: str,
) -> None:
    """Record the missing segments, then that the restart is reconciled. Repeated, it changes
    nothing but adds audit lines.
    """
    if restart.is_reconciled:
        return
    for each in found.missing:
        row = each.row
        missing = SegmentMissing(row.segment_id.partition, row.segment_id.id, row.finished_at)
        await keep_audit(
            AuditLine(
                ambient.now_ms(), AuditAction.SEGMENT_MISSING, missing.partition,
                row.segment_id.id, row.start_offset, row.end_offset, -1, each.why, by,
            )
        )  # fmt: skip
        await _accepted(metadata, missing)
    why = (
        f"restarted at {restart.offset}: {found.whole} segments whole, {len(found.missing)} given "
        f"up as missing; deletes are allowed again"
    )
    await keep_audit(
        AuditLine(ambient.now_ms(), AuditAction.RECONCILED, None, None, -1, -1, -1, why, by)
    )
    await _accepted(metadata, Reconciled(restart.offset))


async def _accepted(metadata: RemoteLogMetadataManager, record: RestartRecord) -> None:
    for attempt in range(1, RECORD_ATTEMPTS_MAX + 1):
        try:
            await metadata.record_restart(record)
        except (RetryLater, OutcomeUnknown):
            if attempt == RECORD_ATTEMPTS_MAX:
                raise
            await ambient.sleep(RECORD_PAUSE_S)
        else:
            return


def run_reconcile(
    settings: Settings,
    *,
    record: bool,
    accept_missing: int | None,
    take_over: Collection[str] = (),
) -> ReconcileReport:
    """Run `reconcile` in an event loop of its own."""
    return event_loop.run(
        reconcile(settings, record=record, accept_missing=accept_missing, take_over=take_over)
    )
