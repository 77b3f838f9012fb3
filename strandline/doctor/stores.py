"""Doctor's checks of a store: every kind of request that a node makes, the owner of the prefix, and
the clock.

Probe objects are written under keys of their own and removed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound, StrandlineError
from rlm.control.surroundings import CopyLimits
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.clock_check import compare_clocks
from rlm.stores.cluster_marker import MARKER_BYTES_MAX, ClusterMarker, check_marker
from rsm_backends.open_store import open_store
from rsm_backends.probe import ProbeResult, probe
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from strandline.doctor.compatibility import find_compatibility
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity
from strandline.node import ambient
from strandline.node.surroundings import store_surroundings

PROBE_DEADLINE_S = 60.0
_CLOCK_PROBE = b"strandline doctor compares clocks\n"
_NAMES = {"head": "head, CRC32C", "multipart": "multipart, CRC32C"}


async def check_store(config: StoreConfig, identity: FormattedIdentity | None) -> list[Finding]:
    """All findings about one store; one finding if it can't be opened or does not answer."""
    check = f"store {config.name}"
    try:
        store = await open_store(config, **store_surroundings())
    except StrandlineError as error:
        return [Finding(check, False, str(error))]
    try:
        async with asyncio.timeout(PROBE_DEADLINE_S):
            return await _look(config, store, identity)
    except TimeoutError:
        return [Finding(check, False, f"no answer within {PROBE_DEADLINE_S:.0f} s")]
    except StrandlineError as error:
        return [Finding(check, False, str(error))]
    finally:
        await store.close()


async def _probed(config: StoreConfig) -> list[ProbeResult]:
    store = await open_store(config, **store_surroundings())
    try:
        return await probe(store, config.prefix, ambient.new_nonce())
    finally:
        await store.close()


async def _look(
    config: StoreConfig, store: ObjectStore, identity: FormattedIdentity | None
) -> list[Finding]:
    check = f"store {config.name}"
    results = await probe(store, config.prefix, ambient.new_nonce())
    findings = [
        Finding(f"{check}: {_NAMES.get(each.name, each.name)}", each.ok, each.detail)
        for each in results
    ]
    words = await find_compatibility(config, results, _probed)
    if words is not None:
        findings.append(words)
    if not findings[0].ok:
        return findings
    return [
        *findings,
        await _found(f"{check}: clock", _clock(config, store)),
        await _found(f"{check}: cluster marker", _marker(config, store, identity)),
    ]


async def _found(check: str, looking: Awaitable[tuple[bool, str]]) -> Finding:
    """The finding of one check; its error is a finding too, so that the other checks still run."""
    try:
        return Finding(check, *await looking)
    except StrandlineError as error:
        return Finding(check, False, str(error))


async def _clock(config: StoreConfig, store: ObjectStore) -> tuple[bool, str]:
    """Compare this machine's clock with the store's."""
    limit_ms = round(CopyLimits().clock_difference_max_s * 1_000)
    folder = cluster_marker_key(config.prefix).rpartition("/")[0]
    key = f"{folder}/probe-{ambient.new_nonce()}/clock"
    before_ms = ambient.now_ms()
    await store.put(key, _CLOCK_PROBE, crc32c=crc32c(_CLOCK_PROBE))
    after_ms = ambient.now_ms()
    try:
        store_ms = (await store.head(key)).last_modified_ms
    finally:
        with suppress(StrandlineError):  # the probe reports a missing right to delete
            await store.delete_many([key])
    trouble = compare_clocks(config.name, before_ms, after_ms, store_ms, limit_ms)
    return trouble is None, trouble or f"within {limit_ms // 1_000} s of this machine's clock"


async def _marker(
    config: StoreConfig, store: ObjectStore, identity: FormattedIdentity | None
) -> tuple[bool, str]:
    """Check that the prefix belongs to this cluster, or to no cluster yet."""
    key = cluster_marker_key(config.prefix)
    try:
        data = await read_all(store, key, end=MARKER_BYTES_MAX)
    except NotFound:
        return True, (
            "none yet: a node writes it at its start, unless its metadata has segments in this "
            "store and none of their objects exists"
        )
    try:
        found = ClusterMarker.decode(data, source=f"{config.name}:{key}")
        if identity is None:
            return True, f"the prefix belongs to the Strandline cluster {found.cluster_id}"
        ours = ClusterMarker(identity.cluster_id, identity.kafka_cluster_id)
        check_marker(found, ours, where=f"{key} in the store {config.name!r}")
    except StrandlineError as error:
        return False, str(error)
    return True, "the prefix belongs to this cluster"
