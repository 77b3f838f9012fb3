"""The node's own snapshot gives way to an installed one, which waits for scans of the view."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import RetryLater
from rlmm.manager import apply_loop
from rlmm.manager.manager import MetadataLimits
from rlmm.view import view as view_module
from rlmm.view.view import View
from tests.rlmm.metadata_node import copied, running_node


async def test_an_installed_snapshot_ends_the_own_one_that_keeps_the_view_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may be so slow that the own one would outlast the wait: the node stopped."""
    monkeypatch.setattr(view_module, "SWAP_ATTEMPTS_MAX", 20)
    limits = MetadataLimits(snapshot_slice_rows=1)
    begun, installing = asyncio.Event(), asyncio.Event()

    async def install(log: object, view: View, levels: object) -> None:
        del log, levels
        installing.set()
        rows = list(view.rows_in_key_order())
        offset, epoch = view.applied_offset, view.applied_epoch
        await asyncio.to_thread(view.install_from, rows, applied_offset=offset, epoch=epoch)

    monkeypatch.setattr(apply_loop, "install_if_needed", install)
    async with running_node(tmp_path, limits=limits) as node:
        await copied(node.manager, 5)
        digest = node.manager.digest()
        begin = node.log.begin_snapshot

        async def slow_begin(*given: Any, **named: Any) -> Any:
            sink = await begin(*given, **named)
            add, never = sink.add, asyncio.Event()

            async def slow_add(rows: Any) -> None:
                await (never if installing.is_set() else installing).wait()
                await add(rows)

            sink.add = slow_add  # type: ignore[method-assign]
            begun.set()
            return sink

        monkeypatch.setattr(node.log, "begin_snapshot", slow_begin)
        taking = asyncio.create_task(node.manager.take_snapshot())
        await begun.wait()
        try:
            await node.manager._applying._install_snapshot()
            with pytest.raises(RetryLater, match="is being installed"):
                await taking
        finally:
            taking.cancel()
        assert node.manager.digest() == digest
