"""`strandline audit`: what a node deleted, marked and moved, and why."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from rlm.control.audit import AuditAction
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import human_bytes, human_time, print_json, print_table


def audit_command(
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only of this partition.")] = None,
    action: Annotated[AuditAction | None, typer.Option(help="Only this action.")] = None,
    segment: Annotated[str | None, typer.Option(help="Only of this segment id.")] = None,
    lines: Annotated[int, typer.Option(min=1, max=1_000_000, help="Lines, at most.")] = 100,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """What the node deleted, marked and moved, and why; newest first.

    Example: `strandline audit --topic orders --action objects_deleted`
    """
    with NodeClient(url, token_file) as client:
        pages = client.pages(
            "/v1/audit",
            "lines",
            topic=topic,
            partition=partition,
            action=action,
            segment=segment,
            limit=min(lines, 1_000),
        )
        found = list(islice(pages, lines))
    if json:
        print_json(found)
        return ExitCode.OK
    print_table(
        ["time", "action", "partition", "offsets", "size", "segment", "by", "why"],
        [_row(line) for line in found],
    )
    return ExitCode.OK


def _row(line: dict[str, Any]) -> tuple[object, ...]:
    start, end, size = line["start_offset"], line["end_offset"], line["size_bytes"]
    return (
        human_time(line["at_ms"]),
        line["action"].replace("_", " "),
        None if line["topic"] is None else f"{line['topic']}-{line['partition']}",
        start if end is None else f"{start}-{end}",
        None if size is None else human_bytes(size),
        line["segment_id"],
        line["by"],
        line["why"],
    )
