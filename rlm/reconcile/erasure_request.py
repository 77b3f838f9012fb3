"""The request for an erasure, and the states of a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rlm.reconcile.erasure_plan import Scope


class ErasureState(StrEnum):
    """The state of an erasure. INCOMPLETE: something is left, or was not looked at. FAILED: it has
    not looked at all.
    """

    RUNNING = "running"
    FINISHED = "finished"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """`apply` False only looks. `why` stands in the audit. `elsewhere`: stores that other nodes'
    settings have, each with what to say if this node's lack it.
    """

    scope: Scope
    apply: bool
    deadline_s: float
    why: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)
