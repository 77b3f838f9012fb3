"""The settings of the spool for segments from a broker whose disk the node does not see."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from strandline.settings.fields import PositiveInt, Section


class SpoolSettings(Section):
    """The spool for segments that a broker sends because this node does not see its disk."""

    dir: Path | None = Field(
        default=None,
        description="Directory in which the node makes its own, `spool-NODE`, which it empties at "
        "each start. Left out: `node.data_dir`.",
    )
    bytes_max: PositiveInt = Field(
        default=4 * 2**30,
        description="Most bytes of all segments in it; at least the largest segment's.",
    )
    copies_max: PositiveInt = Field(
        default=2, description="Segments received or copied from it at once; others wait."
    )
    free_bytes_min: PositiveInt = Field(
        default=2**30, description="Bytes kept free on its disk: else the broker tries later."
    )
