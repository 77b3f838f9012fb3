"""What a restore of a partition notes of itself where it restores to, so that a later run knows it
again. Pure.

The tier goes on while a restore runs: `latest` means another offset an hour later, and retention
moves `earliest`. So the note has what was asked for beside the offsets that it meant then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Begun:
    """`source` is the partition as it was tiered, and how it is read. `end_offset` is exclusive.
    `asked` stands for the limits as the command had them (`Wanted.asked`).
    """

    source: str
    first_offset: int
    end_offset: int
    asked: str

    def __str__(self) -> str:
        return f"{self.source} from {self.first_offset} to {self.end_offset - 1}"

    def text(self) -> str:
        """As it is noted."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def goes_on(self, noted: Begun | None) -> bool:
        """Whether this is the restore that was noted: it asks for the same, or means the same."""
        if noted is None or noted.source != self.source:
            return False
        ours = (self.first_offset, self.end_offset)
        return noted.asked == self.asked or (noted.first_offset, noted.end_offset) == ours


def parse_begun(text: str) -> Begun | None:
    """None: it is no note of a restore."""
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
