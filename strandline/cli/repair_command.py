"""`strandline repair`: find damaged segments and copy them again from a whole copy."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, print_error, print_table, print_text
from strandline.cli.query_answers import path_part
from strandline.node import ambient

ASKED_EVERY_S = 0.5


@asks_node
def repair_command(
    client: NodeClient,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of it.")] = None,
    segment: Annotated[str | None, typer.Option(help="Only the segment with this id.")] = None,
    from_scrub: Annotated[
        bool,
        typer.Option(
            "--from-scrub", help="Only damage that scrubs and reads reported to the node."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it, only report.")] = False,
) -> Answer:
    """Copy damaged segments again from a whole copy elsewhere; a dry run without `--yes`.

    Reads every byte of the segments of the partitions that the node leads. A damaged or missing
    segment is copied under a new id from the broker's own segments, from held segments, from an
    earlier version of the object, or from the brokers of other replicas; it is read back before the
    damaged one is deleted. Exit code 8: damage remains.

    Example: `strandline repair --topic orders --partition 0`, then the same with `--yes`
    """
    body: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "segment": segment,
        "from_scrub": from_scrub,
        "apply": yes,
    }
    job = client.change_node("POST", "/v1/jobs/repair", body)
    with console.status("reading segments") as status:
        while job["state"] == "running":
            asyncio.run(ambient.sleep(ASKED_EVERY_S))
            job = client.get(f"/v1/jobs/repair/{path_part(job['id'])}")
            status.update(
                f"{job['checked']} segments read ({human_bytes(job['checked_bytes'])}), "
                f"{job['damaged']} damaged"
            )
    done = job["state"] == "finished" and not (job["standing"] or job["elsewhere"] or job["unread"])
    return Answer(job, lambda: _print(job), ExitCode.OK if done else ExitCode.INCOMPLETE)


def _print(job: dict[str, Any]) -> None:
    if job["segments"]:
        print_table(
            ["partition", "offsets", "segment", "damaged", "whole copy", "outcome"],
            [
                (
                    f"{each['topic']}-{each['partition']}",
                    f"{each['start_offset']}-{each['end_offset']}",
                    each["segment_id"],
                    each["wrong"],
                    each["source"] or ("none" if each["action"] == "copy_anew" else ""),
                    each["outcome"],
                )
                for each in job["segments"]
            ],
        )
        for each in job["segments"]:
            print_text(f"{each['segment_id']}: {each['text']}")
    print_text(
        f"{job['checked']} segments read ({human_bytes(job['checked_bytes'])}), "
        f"{job['damaged']} damaged, {job['standing']} of them not repaired"
    )
    for line in (*job["elsewhere"], *job["unread"]):
        print_error(line)
    if any(each["outcome"] == "would" for each in job["segments"]) and not job["apply"]:
        print_text("nothing was changed: --yes does it")
    if job["text"]:
        print_error(job["text"])
