"""Copies 16 segments of 128 MiB by a whole node and by rclone, to MinIO and to a folder.

`python -m bench.copy_segments` writes one table. Everything lies in memory (/dev/shm, about 6 GiB)
and is removed afterwards. The runs of both programs alternate; CPU is that of supervisor and worker
together (user + system, starting them included), the store's server is not counted.

Each program's first copy into a folder is reported apart, on memory that nobody used for
`FREE_MEMORY_SETTLES_S`: a virtual machine gives memory that stays free back to its host, and
whoever touches it next pays for getting it again. The rounds that are compared come after it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.copy_log_dirs import LogDir, write_log_dir
from bench.copy_processes import Measured, measured
from bench.table import Measure, percentile, write_table
from rsm_backends.store_config import StoreConfig
from tests.real import s3_admin
from tests.real.minio import MINIO_VERSION, MinioServer
from tests.real.rclone import RCLONE_VERSION, rclone_program

STRANDLINE = str(Path(sys.executable).with_name("strandline"))
MIB, GIB = 1 << 20, 1 << 30
BIG_KIB = 16
BIG = "16 KiB batches"
RESIDENT_MIB_MAX = 400
FREE_MEMORY_SETTLES_S = 30
DELAY_MS_MAX = 10
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
                *(STRANDLINE, "copy", "--once", "--json"),
                *("--log-dir", str(source.path), "--data-dir", str(data_dir), *store),
            ]
        )
        report = json.loads(run.output[run.output.index("{") :])
        if not report["complete"] or len(report["copied"]) != source.segments:
            raise RuntimeError(f"the copy is not complete: {run.output[-4000:]}")
        shutil.rmtree(data_dir)
        return run

    def _rclone(self, source: LogDir, target: str) -> Measured:
        """Copy with rclone and its defaults, but four transfers, ours too, and no look whether the
        bucket is there.
        """
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

    def loop_delays_ms(self, source: LogDir) -> tuple[list[float], list[float]]:
        """The supervisor's loop delays during one copy to MinIO, and the part it worked itself."""
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
        return found["delays_ms"], found["own_delays_ms"]

    def empty_bucket(self) -> None:
        """Delete every object, and so free the memory it takes.

        MinIO moves what is deleted to its trash and removes it when it finds the time: some rounds
        of 2 GiB at once were more than the machine has.
        """
        empty_bucket(self._config)
        for each in (self._home / "minio/data/.minio.sys/tmp/.trash").iterdir():
            shutil.rmtree(each, ignore_errors=True)

    def _data_dir(self) -> Path:
        self._runs += 1
        return self._home / f"data-{self._runs}"


def empty_bucket(config: StoreConfig) -> None:
    """Delete every object."""
    s3 = s3_admin.client(config)
    while found := s3.list_objects_v2(Bucket=config.bucket).get("Contents"):
        s3.delete_objects(
            Bucket=config.bucket, Delete={"Objects": [{"Key": each["Key"]} for each in found]}
        )
    s3.close()


def first_copies(target: Target, source: LogDir, batches: str) -> list[Measure]:
    """Each program's copy on memory that was left free for a while, and what that memory costs."""
    where = f"{target.name}, {batches}, first copy"
    gib = source.total_bytes / GIB
    measures = []
    for name, command in (("strandline", target.ours), ("rclone", target.peer)):
        time.sleep(FREE_MEMORY_SETTLES_S)
        run = command(source)
        target.empty()
        measures.append(Measure(f"{where}: {name}", "CPU s/GiB", [run.cpu_s / gib]))
    return measures


def memory_costs(folder: Path) -> list[Measure]:
    """The CPU that a first and a second writer of the same GiB of memory take."""
    path = folder / "touched"
    found = []
    for which in ("first", "second"):
        if which == "first":
            time.sleep(FREE_MEMORY_SETTLES_S)
        before = os.times()
        with path.open("wb") as file:
            for _ in range(GIB // MIB):
                file.write(bytes(MIB))
        after = os.times()
        path.unlink()
        cpu_s = after.user + after.system - before.user - before.system
        found.append(Measure(f"memory alone, {which} writer of a GiB", "CPU s/GiB", [cpu_s]))
    return found


def compare(
    target: Target, source: LogDir, batches: str, rounds: int, cpu_ratio_max: float
) -> list[Measure]:
    """Both programs, and their ratios round by round."""
    ours: list[Measured] = []
    peer: list[Measured] = []
    for _ in range(rounds):
        for runs, command in ((ours, target.ours), (peer, target.peer)):
            runs.append(command(source))
            target.empty()
    mib, gib = source.total_bytes / MIB, source.total_bytes / GIB
    where = f"{target.name}, {batches}"
    measures = []
    for name, runs in (("strandline", ours), ("rclone", peer)):
        resident = [run.resident_bytes / MIB for run in runs]
        bound = name == "strandline"
        measures += [
            Measure(f"{where}: {name}", "MiB/s", [mib / run.wall_s for run in runs]),
            Measure(f"{where}: {name}", "CPU s/GiB", [run.cpu_s / gib for run in runs]),
            Measure(
                f"{where}: {name}, resident", "MiB", resident,
                target="< 400" if bound else "",
                met=max(resident) < RESIDENT_MIB_MAX if bound else None,
            ),
        ]  # fmt: skip
    pairs = list(zip(ours, peer, strict=True))
    speeds = [theirs.wall_s / mine.wall_s for mine, theirs in pairs]
    cpu = [mine.cpu_s / theirs.cpu_s for mine, theirs in pairs]
    held = statistics.median(speeds) >= 1
    aim = "" if batches != BIG else ">= 1"
    measures += [
        Measure(f"{where}: speed", "x rclone's", speeds, aim, held if aim else None),
        Measure(
            f"{where}: CPU", "x rclone's", cpu,
            target=f"<= {cpu_ratio_max:g}",
            met=statistics.median(cpu) <= cpu_ratio_max,
        ),
    ]  # fmt: skip
    return measures


def loop_delay(workshop: Workshop, source: LogDir, batches: str) -> list[Measure]:
    """Delays of the supervisor's event loop."""
    delays, own = workshop.loop_delays_ms(source)
    late = percentile(delays, 99)
    return [
        Measure(f"MinIO, {batches}: supervisor loop delay", "ms", delays),
        Measure(
            f"MinIO, {batches}: of that its own work, p99", "ms", [percentile(own, 99)]
        ),
        Measure(
            f"MinIO, {batches}: supervisor loop delay, p99", "ms", [late],
            target="< 10", met=late < DELAY_MS_MAX,
        ),
    ]  # fmt: skip


def measures_of(workshop: Workshop, source: LogDir, kib: int, rounds: int) -> list[Measure]:
    """Everything about one batch size."""
    batches = BIG if kib >= BIG_KIB else f"{kib} KiB batches"
    found = []
    for target in workshop.targets():
        if target.name == "folder":
            found += first_copies(target, source, batches)
        found += compare(target, source, batches, rounds, 0.75 if batches == BIG else 1.0)
    found += loop_delay(workshop, source, batches)
    workshop.empty_bucket()
    return found


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--batch-kib", type=int, action="append", help="default: 16 and 1")
    options.add_argument("--work-dir", type=Path, default=Path("/dev/shm"))
    chosen = options.parse_args()
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(dir=chosen.work_dir, prefix="bench-copy-") as folder:
        home = Path(folder)
        (home / "minio").mkdir()
        with MinioServer(home / "minio") as minio:
            workshop = Workshop(home, minio)
            for kib in chosen.batch_kib or (BIG_KIB, 1):
                source = write_log_dir(home / f"log-dir-{kib}", batch_bytes=kib * 1024)
                measures += measures_of(workshop, source, kib, chosen.rounds)
                shutil.rmtree(source.path)
        measures += memory_costs(home)
    write_table(
        "Copy: 16 segments of 128 MiB",
        measures,
        packages=("aiobotocore", "aiohttp", "uvloop", "crc32c"),
        notes=(
            f"MinIO {MINIO_VERSION} over plain HTTP on the same machine, folder on tmpfs",
            f"rclone {RCLONE_VERSION}, defaults, 4 transfers",
            "strandline copy --once, defaults: 1 worker, 4 copies of 2 parts of 12 MiB at once",
        ),
    )


if __name__ == "__main__":
    main()
