"""One suite, every backend: what passes here may be swapped for another without a surprise."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from rsm_backends.measured_store import MeasuredStore, StoreCall
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from tests.real.s3_admin import make_bucket
from tests.rsm_backends.conformance import CHECKS, Check
from tests.rsm_backends.conformance_versions import VERSIONED
from tests.rsm_backends.faulty import FaultyStore, RandomFaults
from tests.rsm_backends.stores import clock_ms, memory_store, opened, retrying


def every_check(**gaps: str) -> pytest.MarkDecorator:
    """All checks; `gaps` names those that a server is known to fail, and why."""
    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(
                check,
                id=check.name,
                marks=[pytest.mark.xfail(reason=gaps[check.name])] if check.name in gaps else [],
            )
            for check in CHECKS
        ],
    )


async def hold(store: ObjectStore, check: Check, backend: str) -> None:
    await check.run(store, f"conformance-{backend}/{check.name}/")


@every_check()
async def test_memory(check: Check) -> None:
    await hold(memory_store(), check, "memory")


@every_check()
async def test_filesystem(check: Check, tmp_path: Path) -> None:
    config = StoreConfig(name="files", kind="filesystem", path=tmp_path)
    async with opened(config) as store:
        await hold(store, check, "filesystem")


@every_check()
@pytest.mark.parametrize("seed", range(5))
async def test_retries_hide_random_faults(check: Check, seed: int) -> None:
    chance = random.Random(f"{seed} {check.name}")
    faulty = FaultyStore(memory_store(), RandomFaults(chance.random))
    await hold(retrying(faulty, attempts_max=30), check, "faulty")


@every_check()
async def test_measuring_changes_nothing(check: Check) -> None:
    class Nowhere:
        def store_call_ended(self, call: StoreCall) -> None: ...

    await hold(MeasuredStore(memory_store(), Nowhere(), monotonic=lambda: 0.0), check, "measured")


@every_check(an_aborted_upload_takes_nothing_more="moto answers 500 for an upload it does not know")
async def test_s3_on_moto(check: Check, moto_store_config: StoreConfig) -> None:
    async with opened(moto_store_config) as store:
        await hold(store, check, "moto")


@pytest.mark.integration
@every_check()
async def test_s3_on_minio(check: Check, minio_store_config: StoreConfig) -> None:
    async with opened(minio_store_config) as store:
        await hold(store, check, "minio")


@pytest.mark.integration
@every_check(
    lists_order_other_scripts_by_their_bytes="LocalStack 4.12 compares its cursor to quoted keys"
)
async def test_s3_on_localstack(check: Check, localstack_store_config: StoreConfig) -> None:
    async with opened(localstack_store_config) as store:
        await hold(store, check, "localstack")


async def test_a_store_in_memory_may_keep_versions() -> None:
    for check in VERSIONED:
        await check(MemoryStore(clock_ms(), versioned=True), "v/")


@pytest.mark.parametrize("seed", range(5))
async def test_retries_hide_random_faults_of_versions(seed: int) -> None:
    for check in VERSIONED:
        kept = MemoryStore(clock_ms(), versioned=True)
        faulty = FaultyStore(kept, RandomFaults(random.Random(seed).random, lost_answer=0))
        await check(retrying(faulty, attempts_max=30), "v/")


async def test_a_bucket_of_moto_may_keep_versions(moto_store_config: StoreConfig) -> None:
    config = replace(moto_store_config, bucket="strandline-versions")
    make_bucket(config, versioned=True)
    async with opened(config) as store:
        for check in VERSIONED:
            await check(store, f"{check.__name__}/")


@pytest.mark.integration
async def test_a_bucket_of_minio_may_keep_versions(minio_store_config: StoreConfig) -> None:
    config = replace(minio_store_config, bucket="strandline-versions")
    make_bucket(config, versioned=True)
    async with opened(config) as store:
        for check in VERSIONED:
            await check(store, f"{check.__name__}/")
