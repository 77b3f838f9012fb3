"""How a mistake is put into the shipped code, for the length of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Patches = tuple[tuple[object, str, Callable[..., Any]], ...]
"""(owner, attribute, what stands there instead), of one mistake."""


@contextmanager
def planting(patches: Patches) -> Iterator[None]:
    """The mistake is made for the length of the block."""
    with ExitStack() as stack:
        for owner, attribute, replacement in patches:
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield
