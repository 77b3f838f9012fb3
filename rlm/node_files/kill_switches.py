"""The node's two kill switches: they stop new copies or deletes until an operator resumes them.

    <data>/kill-switches.json   {"copying": null, "deleting": {"since_ms", "by", "why"}}

A pause applies from the call on and survives a restart; a resume applies once it is on disk. Both
are written even if their caller gives up. An unreadable file turns both switches on: the node may
have been paused for a reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from kafka_formats.errors import CorruptData, RetryLater
from rlm.control.audit import Audit, AuditAction, AuditLine, no_audit
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.format.json_fields import Fields
from rlm.node_files.whole_steps import WholeSteps
from rlmm.log.disk import OsDisk, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "kill-switches.json"
FILE_BYTES_MAX = 16_384
WHY_CHARACTERS_MAX = 500


class Switch(StrEnum):
    """The work that can be paused. The values are stable: the file and the HTTP API use them."""

    COPYING = "copying"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Pause:
    """A switch that is on: `since_ms` (Unix time), by whom, and why."""

    since_ms: int
    by: str
    why: str


Pauses = dict[Switch, Pause]


class KillSwitches:
    """The kill switches of a node. `path` None: pauses end with the process."""

    def __init__(
        self, path: Path | None, *, now_ms: Callable[[], int], audit: Audit = no_audit
    ) -> None:
        """Read the file if there is one; if it cannot be read, both switches are on."""
        self._path = path
        self._now_ms = now_ms
        self._audit = audit
        self._steps = WholeSteps()
        self._pauses: Pauses = {} if path is None else _load(path, now_ms())

    def pause_of(self, switch: Switch) -> Pause | None:
        return self._pauses.get(switch)

    def text(self, switch: Switch) -> str | None:
        """The reason why this work is paused, and how to resume it; None if it is not paused."""
        pause = self._pauses.get(switch)
        if pause is None:
            return None
        why = f" ({pause.why})" if pause.why else ""
        return (
            f"{switch} is paused on this node by {pause.by}{why}; `strandline resume {switch}` "
            "ends the pause"
        )

    def problems(self) -> tuple[NodeProblem, ...]:
        """The switches that are on, so that no pause is forgotten."""
        return tuple(
            NodeProblem(ProblemArea.PAUSED, switch.value, text)
            for switch in Switch
            if (text := self.text(switch)) is not None
        )

    async def pause(self, switch: Switch, *, by: str, why: str = "") -> None:
        """Start no more of this work; copies under way finish. A second pause keeps the `by` and
        `why` of the first.

        RetryLater: paused, but only until the process ends, since the file could not be written.
        """
        known = self._pauses.get(switch)
        pause = known or Pause(self._now_ms(), by, why[:WHY_CHARACTERS_MAX])
        # A new object even if equal: a resume under way ends only the pause that it found.
        self._pauses = {**self._pauses, switch: replace(pause)}
        if known is None:
            self._tell(AuditAction.PAUSED, switch, by, why)
        await self._steps.run(partial(self._store_pause, switch))

    async def _store_pause(self, switch: Switch) -> None:
        try:
            await self._store(self._pauses)
        except OSError as error:
            raise RetryLater(
                f"{switch} is paused until this node ends, but {self._path} can't be written "
                f"({error.strerror}): correct that and pause it again, or a restart resumes it"
            ) from error

    async def resume(self, switch: Switch, *, by: str, why: str = "") -> None:
        """End the pause; no effect if not paused. RetryLater: the work stays paused, because the
        file could not be written, or because it was paused again meanwhile.
        """
        ended = self._pauses.get(switch)  # not a later pause, though this step waits for its turn
        if ended is not None:
            await self._steps.run(partial(self._store_resume, switch, ended, by, why))

    async def _store_resume(self, switch: Switch, ended: Pause, by: str, why: str) -> None:
        if self._pauses.get(switch) is None:
            return
        self._check_still(switch, ended)
        rest = {each: pause for each, pause in self._pauses.items() if each is not switch}
        try:
            await self._store(rest)
        except OSError as error:
            raise RetryLater(
                f"{switch} stays paused: {self._path} can't be written ({error.strerror}): "
                "correct that and resume it again"
            ) from error
        self._check_still(switch, ended)
        # The other switch may have been turned on meanwhile.
        self._pauses = {each: pause for each, pause in self._pauses.items() if each is not switch}
        self._tell(AuditAction.RESUMED, switch, by, why)

    def _check_still(self, switch: Switch, ended: Pause) -> None:
        if self._pauses[switch] is not ended:
            raise RetryLater(
                f"{switch} stays paused: it was paused again meanwhile. Find out why, then "
                "resume it again"
            )

    async def _store(self, pauses: Pauses) -> None:
        if self._path is not None:
            await asyncio.to_thread(replace_file, OsDisk(), self._path, encode_switches(pauses))

    def _tell(self, action: AuditAction, switch: Switch, by: str, why: str) -> None:
        logger.warning("%s %s by %s%s", switch, action, by, f": {why}" if why else "")
        text = f"{switch} on this node{f': {why}' if why else ''}"
        self._audit(AuditLine(self._now_ms(), action, None, None, -1, -1, -1, text, by))


def encode_switches(pauses: Pauses) -> bytes:
    plain = {
        switch.value: None if (pause := pauses.get(switch)) is None else asdict(pause)
        for switch in Switch
    }
    return json.dumps(plain, indent=2).encode() + b"\n"


def parse_switches(data: bytes, *, source: str) -> Pauses:
    """The switches that are on; CorruptData for anything that `encode_switches` does not write."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptData("is not JSON", source=source, position=0) from None
    fields = Fields(value, source, "")
    unknown = sorted(set(fields.names()) - {switch.value for switch in Switch})
    if unknown:
        raise fields.wrong(unknown[0], "is not a switch of this program")
    found: Pauses = {}
    for switch in Switch:
        pause = fields.optional_object(switch.value)
        if pause is not None:
            found[switch] = Pause(pause.integer("since_ms"), pause.text("by"), pause.text("why"))
    return found


def _load(path: Path, now_ms: int) -> Pauses:
    try:
        with path.open("rb") as file:
            return parse_switches(file.read(FILE_BYTES_MAX + 1), source=str(path))
    except FileNotFoundError:
        return {}
    except (OSError, CorruptData) as error:
        logger.error("copying and deleting are paused: %s can't be read: %s", path, error)
        pause = Pause(now_ms, "this node at its start", f"{path} can't be read: {error}")
        return dict.fromkeys(Switch, pause)
