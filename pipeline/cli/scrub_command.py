"""`strandline pipeline scrub`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.catalogue.tiered_segment import DamagedSegment
from pipeline.cli.running import Job, runs_job
from pipeline.jobs import scrub
from pipeline.read.segment_slice import aiven_keys_in
from strandline.cli.exit_codes import ExitCode

TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", help="Only this partition of the one topic; may be repeated."
    ),
]
RecordsOption = Annotated[
    bool, typer.Option("--records", help="Decompress and decode every record, too.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Keep verdicts in this file as they come. If it exists, continue from it: segments "
        "found intact are not read again.",
    ),
]
AivenKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--aiven-keys", help="PEM file or folder, for segments that Aiven's plug-in encrypted."
    ),
]
PostOption = Annotated[
    bool, typer.Option("--post/--no-post", help="Send the results to the node of --url.")
]


@runs_job
def scrub_command(
    job: Job,
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    records: RecordsOption = False,
    state: StateOption = None,
    post: PostOption = True,
    aiven_keys: AivenKeysOption = None,
) -> ExitCode:
    """Read every tiered byte and check it: checksums, batches, offsets, indexes, metadata.

    Nothing is changed. Exit code 8 if a segment is damaged or could not be read.

    Example: `strandline pipeline scrub --url http://127.0.0.1:9480 --state scrub.jsonl`
    """
    wanted = scrub.ScrubOptions(
        topics=tuple(topics or ()),
        partitions=tuple(partitions or ()),
        records=records,
        state=state,
        aiven_keys=tuple(aiven_keys or aiven_keys_in(job.tier)),
        post=post,
    )
    damaged: list[DamagedSegment] = []
    with job.context("scrub", damaged.append) as context:
        found = scrub.run(context, wanted, damaged)
    return job.finish(found)
