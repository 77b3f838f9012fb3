"""Copies 16 segments of 128 MiB by a whole node and by rclone, to MinIO and to a folder.

`python -m bench.copy_segments` writes one table. Everything lies in memory (/dev/shm) and is removed
afterwards. The runs of both programs alternate; CPU is that of supervisor and worker together
(user + system), the store's server is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.copy_log_dirs import LogDir, write_log_dir
from bench.copy_processes import Measured, measured
from bench.report import machine, table
from rsm_backends.store_config import StoreConfig
from tests.real import s3_admin
from tests.real.minio import MINIO_VERSION, MinioServer
from tests.real.rclone import RCLONE_VERSION, rclone_program

MIB, GIB = 1 << 20, 1 << 30
Command = Callable[[LogDir], Measured]


@dataclass(frozen=True, slots=True)
class Target:
    """A store as both programs name it."""

    name: str
    ours: Command
    peer: Command
    empty: Callable[[], None]


class Workshop:
    """The folder, the server and the credentials of one run."""

    def __init__(self, home: Path, minio: MinioServer) -> None:
        self._home = home
        self._config = minio.store_config
        self._credentials = home / "credentials"
        self._credentials.write_text(
            "[default]\n"
            f"aws_access_key_id = {self._config.access_key_id}\n"
            f"aws_secret_access_key = {self._config.secret_access_key}\n"
        )
        self._runs = 0

    def targets(self) -> list[Target]:
        """MinIO and a folder."""
        folder = self._home / "tier"
        s3_store = (
            *("--store", f"s3://{self._config.bucket}/tier/"),
            *("--endpoint-url", str(self._config.endpoint_url)),
            *("--credentials-file", str(self._credentials)),
        )
        return [
            Target(
                "MinIO",
                lambda source: self._strandline(source, s3_store),
                lambda source: self._rclone(source, f"peer:{self._config.bucket}/rclone"),
                lambda: empty_bucket(self._config),
            ),
            Target(
                "folder",
                lambda source: self._strandline(source, ("--store", f"file://{folder}")),
                lambda source: self._rclone(source, str(folder)),
                lambda: shutil.rmtree(folder),
            ),
        ]

    def _strandline(self, source: LogDir, store: tuple[str, ...]) -> Measured:
        data_dir = self._data_dir()
        run = measured(
            [
                *(sys.executable, "-m", "strandline", "copy", "--once", "--json"),
                *("--log-dir", str(source.path), "--data-dir", str(data_dir), *store),
            ]
        )
        report = json.loads(run.output[run.output.index("{") :])
        if not report["complete"] or len(report["copied"]) != source.segments:
            raise RuntimeError(f"the copy is not complete: {run.output[-4000:]}")
        shutil.rmtree(data_dir)
        return run

    def _rclone(self, source: LogDir, target: str) -> Measured:
        """With its defaults, but four transfers, ours too, and no look whether the bucket is."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "RCLONE_CONFIG_PEER_TYPE": "s3",
            "RCLONE_CONFIG_PEER_PROVIDER": "Minio",
            "RCLONE_CONFIG_PEER_ENDPOINT": str(self._config.endpoint_url),
            "RCLONE_CONFIG_PEER_ACCESS_KEY_ID": str(self._config.access_key_id),
            "RCLONE_CONFIG_PEER_SECRET_ACCESS_KEY": str(self._config.secret_access_key),
            "RCLONE_CONFIG_PEER_NO_CHECK_BUCKET": "true",
        }
        return measured(
            [
                *(str(rclone_program()), "copy", str(source.path), target),
                *("--include", "*.log", "--transfers", "4"),
            ],
            environment=environment,
        )

    def loop_delays_ms(self, source: LogDir) -> list[float]:
        """The supervisor's loop delays during one copy to MinIO."""
        data_dir = self._data_dir()
        config = self._home / "node.toml"
        config.write_text(
            f'default_store = "main"\n[node]\ndata_dir = "{data_dir}"\n'
            f'[kafka]\nlog_dirs = ["{source.path}"]\n[topics]\ninclude = ["*"]\n'
            f'[stores.main]\nkind = "s3"\nbucket = "{self._config.bucket}"\nprefix = "tier/"\n'
            f'endpoint_url = "{self._config.endpoint_url}"\n'
            f'credentials_file = "{self._credentials}"\n'
        )
        run = measured([sys.executable, "-m", "bench.copy_loop_delay", str(config)])
        found = json.loads(run.output.strip().splitlines()[-1])
        if not found["complete"] or found["segments"] != source.segments:
            raise RuntimeError(f"the copy is not complete: {run.output[-4000:]}")
        shutil.rmtree(data_dir)
        delays: list[float] = found["delays_ms"]
        return delays

    def _data_dir(self) -> Path:
        self._runs += 1
        return self._home / f"data-{self._runs}"


def empty_bucket(config: StoreConfig) -> None:
    """Delete every object, and so free the memory it takes."""
    s3 = s3_admin.client(config)
    while found := s3.list_objects_v2(Bucket=config.bucket).get("Contents"):
        s3.delete_objects(
            Bucket=config.bucket, Delete={"Objects": [{"Key": each["Key"]} for each in found]}
        )
    s3.close()


def compare(
    target: Target, source: LogDir, batches: str, rounds: int
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows of both programs, and their ratios."""
    runs: dict[str, list[Measured]] = {"strandline": [], "rclone": []}
    for _ in range(rounds):
        for name, command in (("strandline", target.ours), ("rclone", target.peer)):
            runs[name].append(command(source))
            target.empty()
    size = source.total_bytes
    rows = []
    for name, found in runs.items():
        rows.append(
            (
                target.name,
                batches,
                name,
                spread([size / MIB / run.wall_s for run in found], 0),
                spread([run.cpu_s / (size / GIB) for run in found], 2),
                f"{max(run.resident_bytes for run in found) / MIB:.0f}",
            )
        )
    ours, peer = runs["strandline"], runs["rclone"]
    speed = median(peer, lambda run: run.wall_s) / median(ours, lambda run: run.wall_s)
    cpu = median(ours, lambda run: run.cpu_s) / median(peer, lambda run: run.cpu_s)
    return rows, [f"{target.name}, {batches}: MB/s {speed:.2f} x, CPU {cpu:.2f} x rclone's"]


def median(runs: list[Measured], of: Callable[[Measured], float]) -> float:
    """The median of one figure."""
    return statistics.median(of(run) for run in runs)


def spread(values: list[float], digits: int) -> str:
    """Minimum / median / maximum."""
    chosen = (min(values), statistics.median(values), max(values))
    return " / ".join(f"{value:.{digits}f}" for value in chosen)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--batch-kib", type=int, action="append", help="default: 16 and 1")
    options.add_argument("--target", choices=("MinIO", "folder"), help="default: both")
    options.add_argument("--work-dir", type=Path, default=Path("/dev/shm"))
    chosen = options.parse_args()
    rows: list[tuple[str, ...]] = []
    ratios: list[str] = []
    print(machine(f"MinIO {MINIO_VERSION}", f"rclone {RCLONE_VERSION}"), flush=True)
    with tempfile.TemporaryDirectory(dir=chosen.work_dir, prefix="bench-copy-") as folder:
        home = Path(folder)
        with MinioServer(home / "minio") as minio:
            workshop = Workshop(home, minio)
            for kib in chosen.batch_kib or (16, 1):
                source = write_log_dir(home / f"log-dir-{kib}", batch_bytes=kib * 1024)
                for target in workshop.targets():
                    if chosen.target not in (None, target.name):
                        continue
                    found, ratio = compare(target, source, f"{kib} KiB", chosen.rounds)
                    rows += found
                    ratios += ratio
                if chosen.target != "folder":
                    delays = workshop.loop_delays_ms(source)
                    empty_bucket(minio.store_config)
                    p99 = delays[len(delays) * 99 // 100]
                    ratios.append(
                        f"supervisor loop delay while copying, {kib} KiB: median "
                        f"{statistics.median(delays):.2f} ms, p99 {p99:.2f} ms, "
                        f"max {delays[-1]:.2f} ms ({len(delays)} samples)"
                    )
                shutil.rmtree(source.path)
    head = ("store", "batches", "program", "MiB/s", "CPU s per GiB", "resident MiB, peak")
    print(table(head, rows))
    print("\n".join(ratios))


if __name__ == "__main__":
    main()
