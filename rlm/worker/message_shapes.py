"""A fingerprint of the classes of the messages between supervisor and worker. Pure.

Pickle writes the fields of a frozen class with slots as a list, without their names. A program in
which a field was added, removed or moved reads the values into other fields, without an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import Any, get_args, get_type_hints

from rlm.worker.messages import FromWorker, ToWorker

DIGEST_BYTES = 8


def message_shapes(*roots: Any) -> str:
    """Hash the names, in order, and types of the fields of the messages' classes, and of all
    classes in their fields. `roots`: types to begin with; none: all messages.
    """
    found: dict[str, list[str]] = {}
    waiting = list(roots or (ToWorker, FromWorker))
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        fields = _fields(kind)
        if fields is None or (name := f"{kind.__module__}.{kind.__qualname__}") in found:
            continue
        types = dict(fields)
        found[name] = [f"{field}: {type_}" for field, type_ in types.items()]
        waiting += types.values()
    return blake2b(repr(sorted(found.items())).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _fields(kind: Any) -> Iterator[tuple[str, Any]] | None:
    """Name and type of each field, or name and value of each member of an Enum; None: any other
    type.
    """
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Enum):
        return ((member.name, member.value) for member in kind)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = list(kind._fields)
    else:
        return None
    types = get_type_hints(kind)
    return ((name, types[name]) for name in names)
