"""Shows progress on the terminal while segments are copied: a line for each segment, a bar
for all.
"""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import (
    CopyEvent,
    LostRangeRecorded,
    SegmentCopied,
    SegmentFailed,
    SegmentProgress,
    SegmentStarted,
)
from strandline.cli.output import human_bytes


class CopyProgressView:
    """The progress bar and lines. Pass `on_event` to the remote log manager, and enter it around
    the run.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=console,
            transient=True,
        )
        self._all: TaskID | None = None
        self._under_way: dict[Uuid, tuple[int, int]] = {}
        self._bytes_done = 0

    def __enter__(self) -> Self:
        self._progress.start()
        self._all = self._progress.add_task("copying", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_event(self, event: CopyEvent) -> None:
        """Show one event. The event loop calls it, so it never blocks."""
        match event:
            case SegmentStarted():
                self._under_way[event.segment_id.id] = (0, event.size_bytes)
            case SegmentProgress():
                self._under_way[event.segment_id.id] = (event.bytes_done, event.bytes_total)
            case SegmentCopied():
                self._under_way.pop(event.segment_id.id, None)
                self._bytes_done += event.size_bytes
                self._line(
                    f"[green]copied[/green]  {_name(event.segment_id.partition)}  offsets "
                    f"{event.start_offset} to {event.end_offset}  "
                    f"{human_bytes(event.size_bytes)}  {event.took_ms} ms"
                )
            case SegmentFailed():
                if event.segment_id is not None:
                    self._under_way.pop(event.segment_id.id, None)
                self._line(
                    f"[red]failed[/red]  {_name(event.partition)}  from offset "
                    f"{event.start_offset}: {escape(event.error)}"
                )
            case LostRangeRecorded():
                self._line(
                    f"[red]lost[/red]    {_name(event.partition)}  offsets {event.start} to "
                    f"{event.end}: {escape(event.why)}"
                )
            case _:
                return
        self._redraw()

    def _line(self, text: str) -> None:
        self._progress.console.print(text, soft_wrap=True)

    def _redraw(self) -> None:
        if self._all is None:
            return
        done = self._bytes_done + sum(part for part, _ in self._under_way.values())
        total = self._bytes_done + sum(whole for _, whole in self._under_way.values())
        self._progress.update(self._all, completed=done, total=max(total, 1))


def _name(partition: TopicIdPartition) -> str:
    return escape(f"{partition.topic}-{partition.partition}")
