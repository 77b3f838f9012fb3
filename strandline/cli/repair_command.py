"""`strandline repair`: which segments are damaged, where a whole copy is, and copying them anew."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, print_error, print_json, print_table
from strandline.cli.query_answers import path_part
from strandline.node import ambient

ASKED_EVERY_S = 0.5


def repair_command(
    topic: Annotated[str | None, typer.Option(help="The topic to look at.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of it.")] = None,
    segment: Annotated[str | None, typer.Option(help="Only the segment with this id.")] = None,
    from_scrub: Annotated[
        bool,
        typer.Option(
            "--from-scrub", help="Only what scrubs and reads found, as far as the node was told."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it, only look.")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Copy damaged segments anew, from where a whole copy is; a dry run without `--yes`.

    Reads every byte of the segments of the partitions that the node leads. A segment that is
    damaged or gone is copied under a new id from the broker's own segments, from what is held,
    from an earlier version of the object, or from the brokers of the other replicas, read back,
    and only then is the damaged one deleted. Exit code 8: damage stands.

    Example: `strandline repair --topic orders --partition 0`, then the same with `--yes`
    """
    body: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "segment": segment,
        "from_scrub": from_scrub,
        "apply": yes,
    }
    with NodeClient(url, token_file) as client:
        job = client.change("POST", "/v1/jobs/repair", body)
        with console.status("reading segments") as status:
            while job["state"] == "running":
                asyncio.run(ambient.sleep(ASKED_EVERY_S))
                job = client.get(f"/v1/jobs/repair/{path_part(job['id'])}")
                status.update(
                    f"{job['checked']} segments read ({human_bytes(job['checked_bytes'])}), "
                    f"{job['damaged']} damaged"
                )
    if json:
        print_json(job)
    else:
        _print(job)
    done = job["state"] == "finished" and not (job["standing"] or job["elsewhere"] or job["unread"])
    return ExitCode.OK if done else ExitCode.INCOMPLETE


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
            console.print(f"{each['segment_id']}: {each['text']}", markup=False)
    console.print(
        f"{job['checked']} segments read ({human_bytes(job['checked_bytes'])}), "
        f"{job['damaged']} damaged, {job['standing']} of them not repaired",
        markup=False,
    )
    for line in (*job["elsewhere"], *job["unread"]):
        print_error(line)
    if any(each["outcome"] == "would" for each in job["segments"]) and not job["apply"]:
        console.print("nothing was changed: --yes does it", markup=False)
    if job["text"]:
        print_error(job["text"])
