"""`strandline mode`: who copies and expires a partition."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, print_fields, print_json
from strandline.cli.query_answers import (
    DoItOption,
    NewestIncarnationOption,
    PartitionArgument,
    TopicArgument,
    partition_path,
)


class ModeChoice(StrEnum):
    """Who copies and expires a partition: the node beside its leader, or nobody."""

    SIDECAR = "sidecar"
    READ_ONLY = "read_only"
    PAUSED = "paused"


mode_app = typer.Typer(
    help="Who copies and expires a partition: set.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@mode_app.callback()
def _mode() -> None:
    """Who copies and expires a partition: set."""


@mode_app.command("set")
def mode_set_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    mode: Annotated[
        ModeChoice,
        typer.Argument(help="`sidecar`: the node beside its leader. The others: nobody."),
    ],
    yes: DoItOption = False,
    topic_id: NewestIncarnationOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Change who copies and expires a partition, on all nodes; reading goes on in any mode.

    `strandline partitions` shows the mode. To stop copying for a while, `strandline pause` is
    simpler.

    Example: `strandline mode set orders 0 read_only`, then
    `strandline mode set orders 0 read_only --yes`
    """
    path = f"{partition_path(topic, partition)}/mode"
    body: dict[str, object] = {"mode": mode.value, "dry_run": True}
    with NodeClient(url, token_file) as client:
        answer = client.change("PUT", path, body, topic_id=topic_id)
        if yes:
            seen = {"replaces_offset": answer["mode_offset"], "confirm": topic}
            answer = client.change("PUT", path, body | seen | {"dry_run": False}, topic_id=topic_id)
    if json:
        print_json(answer)
        return ExitCode.OK
    print_fields(_fields(answer))
    if not yes:
        console.print("nothing was changed: --yes does it", markup=False)
    return ExitCode.OK


def _fields(answer: dict[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {
        "partition": f"{answer['topic']}-{answer['partition']}",
        "mode": answer["mode"],
        "changed": answer["changed"],
        "effect": answer["text"],
    }
    claim = answer["next_claim"]
    if claim is not None:
        refused = claim["verdict"] not in ("accepted", "no_effect")
        cuts = "" if claim["cut_at"] is None else f", cuts the lineage at {claim['cut_at']}"
        fields["next claim"] = (
            f"{claim['verdict']}: {claim['text']}"
            if refused
            else (f"accepted{cuts}, log start {claim['log_start_offset']}")
        )
    return fields
