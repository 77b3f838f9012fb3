"""The note that a restore of a partition leaves in its target, by which a later run recognises it.
Pure.

The tier changes while a restore runs: `latest` means a different offset an hour later, and
retention moves `earliest`. So the note has the requested limits, and the offsets that they meant
then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Begun:
    """A restore that has begun. `source` is the tiered partition and the isolation of its read.
    `end_offset` is exclusive. `asked` identifies the limits in the command (`Wanted.asked`).
    """

    source: str
    first_offset: int
    end_offset: int
    asked: str

    def __str__(self) -> str:
        return f"{self.source} from {self.first_offset} to {self.end_offset - 1}"

    def text(self) -> str:
        """The text of the note."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def goes_on(self, noted: Begun | None) -> bool:
        """True if this continues the noted restore: same source, and same limits or offsets."""
        if noted is None or noted.source != self.source:
            return False
        ours = (self.first_offset, self.end_offset)
        return noted.asked == self.asked or (noted.first_offset, noted.end_offset) == ours


def parse_begun(text: str) -> Begun | None:
    """The restore in a note; None if the text is not such a note."""
    try:
        found = json.loads(text)
        return Begun(
            source=str(found["source"]),
            first_offset=int(found["first_offset"]),
            end_offset=int(found["end_offset"]),
            asked=str(found["asked"]),
        )
    except (ValueError, TypeError, KeyError):
        return None
