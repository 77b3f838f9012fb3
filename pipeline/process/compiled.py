"""Finds the compiled modules, and checks that each was built from the source beside it."""

from __future__ import annotations

import hashlib
import importlib
import logging
from functools import cache
from pathlib import Path
from types import ModuleType

MODULES = ("pipeline.decode.kernel", "pipeline.jobs.log_scan", "pipeline.rebuild.usual_manifest")

logger = logging.getLogger(__name__)


def say_what_is_not_compiled() -> None:
    """Warns in the driver of modules that are not compiled: executors warn only in their logs."""
    for name in MODULES:
        compiled(name)


@cache
def compiled(name: str) -> ModuleType | None:
    """The module; None, with a warning once a process, if it is not built or not of its source.

    Pure Python then does its work, many times slower.
    """
    try:
        module = importlib.import_module(name)
    except ImportError:
        logger.warning(
            "%s is not built, and pure Python does its work, many times slower: install a wheel "
            "that was built with a C compiler and Cython, or run `make .venv/.dev`",
            name,
        )
        return None
    if not _is_of_its_source(module):
        logger.warning(
            "%s is not used, since it was built from a different source than the file beside it: "
            "pure Python does its work, many times slower, until you run `make .venv/.dev`",
            name,
        )
        return None
    return module


def _is_of_its_source(module: ModuleType) -> bool:
    """True if the module was built from the source beside it, or if no source lies there."""
    name = module.__name__.rpartition(".")[2]
    assert module.__file__ is not None
    try:
        source = Path(module.__file__).with_name(f"{name}.pyx").read_bytes()
    except OSError:
        return True
    built_from = getattr(module, "SOURCE", "")  # missing in old builds
    return bool(built_from == hashlib.sha256(source).hexdigest())
