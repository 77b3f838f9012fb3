"""`strandline pipeline scrub`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.catalogue.tiered_segment import DamagedSegment
from pipeline.cli.options import (
    ConfOption,
    JsonOption,
    MasterOption,
    ReportOption,
    StoreOption,
    TierOption,
    TokenFileOption,
    UrlOption,
    tier_options,
    typed_key_values,
)
from pipeline.cli.running import finish, job_context
from pipeline.jobs import scrub
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


def scrub_command(
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    records: RecordsOption = False,
    state: StateOption = None,
    post: PostOption = True,
    aiven_keys: AivenKeysOption = None,
    store: StoreOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    options: TierOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    report: ReportOption = None,
    json_wanted: JsonOption = False,
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
        aiven_keys=tuple(aiven_keys or ()),
        post=post,
    )
    tier = tier_options(options, store, url, token_file)
    spark = typed_key_values(conf, option="--conf")
    damaged: list[DamagedSegment] = []
    with job_context(
        "scrub", options=tier, master=master, conf=spark, on_damage=damaged.append
    ) as context:
        found = scrub.run(context, wanted, damaged)
    return finish(found, report_file=report, json_wanted=json_wanted)
