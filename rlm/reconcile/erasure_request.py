"""The request for an erasure, and the states of its run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rlm.reconcile.erasure_plan import Scope


class ErasureState(StrEnum):
    """The state of an erasure. INCOMPLETE: objects are left, or a store was not swept. FAILED: an
    error ended it.
    """

    RUNNING = "running"
    FINISHED = "finished"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """The request for an erasure. With `apply` False it only counts. `why` is written to the audit.
    `elsewhere` has the stores in other nodes' settings, each with the text to report if this node's
    settings lack it.
    """

    scope: Scope
    apply: bool
    deadline_s: float
    why: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)
