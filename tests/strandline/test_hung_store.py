"""A node whose file-system store hangs: it says so, and ends when it is told to."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest

from rlm.format.object_keys import cluster_marker_key
from rsm_backends.object_files import STAGING
from tests.e2e.node_process import NodeProcess
from tests.strandline.conftest import sections

DEADLINE_S = 60


def checksum_file(root: Path, key: str) -> Path:
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return root / STAGING / "checksums" / digest[:2] / digest[2:]


def make_hang(path: Path) -> None:
    """Whoever opens it waits for a writer who never comes."""
    path.unlink()
    os.mkfifo(path)


def store_problems(process: NodeProcess) -> list[str]:
    status = httpx.get(f"{process.url}/v1/cluster").json()
    return [each["text"] for each in status["problems"] if each["about"] == "store"]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("no answer in 8 s", id="just given up"),  # does not count as hanging yet
        pytest.param("no answer in 8 s; 1 call hangs in the file system of", id="hangs"),
    ],
)
def test_a_node_whose_store_hangs_says_so_and_ends_when_it_is_told_to(
    tmp_path: Path, told: str
) -> None:
    tier = tmp_path / "tier"
    with NodeProcess(tmp_path / "node", sections(tier)) as node:
        marker = checksum_file(tier, cluster_marker_key(""))
        node.wait_until(marker.exists, "the marker is written", deadline_s=DEADLINE_S)
        make_hang(marker)
        node.wait_until(
            lambda: any(told in text for text in store_problems(node)),
            "the store's trouble is told",
            deadline_s=DEADLINE_S,
        )
        node.stop()
        assert node.log.rstrip().endswith("stopped")


def test_a_process_does_not_wait_for_a_thread_that_hangs_in_a_store(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    script = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from kafka_formats.crc32c import crc32c
        from rlm.control.process_end import end_process
        from rsm_backends.filesystem import FilesystemStore
        from tests.strandline.test_hung_store import checksum_file, make_hang

        async def main():
            root = Path({str(tmp_path / "tier")!r})
            store = FilesystemStore(root)
            await store.put("k", b"x", crc32c=crc32c(b"x"))
            make_hang(checksum_file(root, "k"))
            try:
                await asyncio.wait_for(store.head("k"), 0.5)
            except TimeoutError:
                await store.close()
                print("closed")

        asyncio.run(main())
        end_process(3)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (3, "closed\n"), done.stderr
    assert f"{tmp_path / 'tier'}: closed while 1 call hangs" in done.stderr


def test_nor_for_one_that_hangs_in_a_log_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    script = textwrap.dedent(
        f"""
        import asyncio
        from rlm.control.process_end import end_process
        from strandline.node import event_loop

        async def main():
            try:
                await asyncio.wait_for(asyncio.to_thread(open, {str(tmp_path / "log")!r}), 0.5)
            except TimeoutError:
                print("given up")

        event_loop.run(main())
        end_process(3)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "given up\n", "")


def test_output_that_can_not_be_written_is_told_by_the_exit_code() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "strandline", "random-uuid"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "No space left" in done.stderr
