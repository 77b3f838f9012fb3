"""`strandline support-bundle`: writes one archive for a bug report, without secrets.

Every text is masked. The member of a source that can't be read has the error as its text, since a
bundle is made when something is broken.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from kafka_formats.errors import Conflict, InvalidRequest
from rlmm.data_directory.data_directory import (
    BOOT_COUNTER,
    CLUSTER_FILE,
    META_PROPERTIES,
    METADATA,
    VIEW,
)
from rlmm.log.recovery import PARTITION_DIRECTORY
from strandline.doctor.masking import Masker

MEMBER_BYTES_MAX = 8 * 1_048_576
LISTED_FILES_MAX = 10_000
LOG_TAIL_BYTES_MAX = 1_048_576
QUORUM_STATE = "quorum-state"

README = """\
Strandline support bundle, made {when} by strandline {version}.

It contains no secret (keys, passwords and tokens are replaced by ***) and no record of any topic.
It does contain names (of topics, hosts, directories, buckets) and ids of the clusters. Look through
it before you pass it on.

{members}
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the bundle; `about` describes it in one line."""

    name: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a member; `read` may raise any exception."""

    name: str
    about: str
    read: Callable[[], str]


def gather(sources: list[Source], masker: Masker) -> list[Member]:
    """Read all members, masked and at most MEMBER_BYTES_MAX characters each. The error of a failed
    one becomes its text.
    """
    members = []
    for source in sources:
        try:
            text = source.read()
        except Exception as error:  # noqa: BLE001 - the other members are still useful
            text = f"could not be read: {type(error).__name__}: {error}\n"
        text = masker.mask(text)
        if len(text) > MEMBER_BYTES_MAX:
            text = text[:MEMBER_BYTES_MAX] + f"\n... cut off at {MEMBER_BYTES_MAX} characters\n"
        members.append(Member(source.name, source.about, text))
    return members


def write_bundle(
    path: Path, members: list[Member], *, when: str, version: str, now_ms: int
) -> list[Member]:
    """Write the archive, readable for its owner only; returns its members, the README first.

    Raises Conflict if `path` exists, InvalidRequest if it can't be written; a partly written file
    is removed.
    """
    width = max(len(member.name) for member in members)
    listing = "\n".join(f"{member.name:{width}}  {member.about}" for member in members)
    readme = README.format(when=when, version=version, members=listing)
    everything = [Member("README.txt", "this list", readme), *members]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in everything:
            data = member.text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{member.name}")
            entry.size, entry.mtime, entry.mode = len(data), now_ms // 1_000, 0o600
            archive.addfile(entry, io.BytesIO(data))
    _write_new(path, buffer.getvalue())
    return everything


def _write_new(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists: name a different file with --output") from None
    except OSError as error:
        raise InvalidRequest(
            f"{path} can't be written ({error.strerror})", field="--output"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidRequest(
            f"{path} can't be written ({error.strerror})", field="--output"
        ) from None


def data_directory_sources(data_dir: Path) -> list[Source]:
    """Sources for the small files of the data directory, and a listing of all its files."""
    partition = f"{METADATA}/{PARTITION_DIRECTORY}"
    files = (META_PROPERTIES, CLUSTER_FILE, BOOT_COUNTER, f"{partition}/{QUORUM_STATE}")
    return [
        *(
            Source(
                f"data-directory/{Path(name).name}",
                f"{name} of the data directory",
                (data_dir / name).read_text,
            )
            for name in files
        ),
        Source(
            "data-directory/listing.txt",
            "names, sizes and times of the data directory's files (metadata log, snapshots, view)",
            lambda: "".join(_listing(data_dir)),
        ),
        Source(
            "data-directory/view-log.txt",
            "RocksDB's own log of the view, last lines",
            lambda: log_tail(data_dir / VIEW / "LOG"),
        ),
    ]


def installed() -> str:
    """The installed Python packages with their versions, one per line."""
    lines = {f"{each.name} {each.version}\n" for each in distributions()}
    return "".join(sorted(lines, key=str.lower))


def _listing(root: Path) -> Iterator[str]:
    listed = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if listed == LISTED_FILES_MAX:
                yield f"... only the first {LISTED_FILES_MAX} files are listed\n"
                return
            listed += 1
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError as error:
                yield f"{path.relative_to(root)}: {error.strerror}\n"
                continue
            yield f"{status.st_size:>14} {int(status.st_mtime)} {path.relative_to(root)}\n"


def log_tail(path: Path) -> str:
    """The last whole lines of a log file, at most LOG_TAIL_BYTES_MAX bytes."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_TAIL_BYTES_MAX))
        data = file.read(LOG_TAIL_BYTES_MAX)
    if size > LOG_TAIL_BYTES_MAX:
        # The first line may be cut within a secret, which masking would not recognise.
        data = data.partition(b"\n")[2]
    return data.decode(errors="backslashreplace")


def as_json(value: Any) -> str:
    """JSON text, indented for people."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
