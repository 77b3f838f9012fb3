"""The mark of the program that a process has loaded, by which executors recognize their driver's.

It is a digest of the sources: the same wherever they are installed, from a wheel, in editable form
or in an archive, and with or without compiled modules, which executors need not have. The release's
number would not do: commits between two releases differ, and the metadata of an editable
installation is as old as that.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec

PACKAGES = (
    "kafka_client", "kafka_formats", "pipeline", "pyspark_strandline", "rlm", "rlmm",
    "rsm_backends",
)  # fmt: skip
"""The packages that executors have (executors/pyproject.toml)."""
DIGEST_BYTES = 8


def program_mark(folders: dict[str, str]) -> str:
    """The digest of all sources in these folders by package, each with its name."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for package in sorted(folders):
        folder = folders[package]
        found = _in_folder(folder) if os.path.isdir(folder) else _in_archive(folder)
        for name, source in sorted(found):
            digest.update(f"{package}/{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def own_folders() -> dict[str, str]:
    """The folder of each package of this process; in an archive a folder of that."""
    specs = {package: find_spec(package) for package in PACKAGES}
    places = {
        package: (spec.submodule_search_locations or []) if spec is not None else []
        for package, spec in specs.items()
    }
    return {package: place for package, found in places.items() for place in found[:1]}


def _in_folder(root: str) -> Iterator[tuple[str, bytes]]:
    # os.walk, since every worker process does this: pathlib takes seven times the 22 ms of CPU.
    for folder, below, names in os.walk(root):
        below[:] = [each for each in below if _is_module(each)]
        for name in names:
            if name.endswith(".py") and _is_module(name[:-3]):
                path = os.path.join(folder, name)
                with open(path, "rb", buffering=0) as file:
                    yield os.path.relpath(path, root).replace(os.sep, "/"), file.readall()


def _in_archive(root: str) -> Iterator[tuple[str, bytes]]:
    """The sources of a package in an archive that `--py-files` shipped; of any other place none."""
    path, package = os.path.split(root)
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(f"{package}/") and name.endswith(".py"):
                parts = name[:-3].split("/")
                if all(map(_is_module, parts)):
                    yield "/".join(parts[1:]) + ".py", archive.read(name)


def _is_module(name: str) -> bool:
    """False of files that no import loads, such as the copies that editors make."""
    return name.isidentifier() and name != "__pycache__"
