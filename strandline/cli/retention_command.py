"""`strandline retention`: what retention would take, and leave to take more at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.answers import PartitionArgument, TopicArgument, partition_path
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, human_time, print_json, print_table
from strandline.cli.quantities import size_text, time_text

retention_app = typer.Typer(
    help="What retention takes from a partition's tier: plan, accept.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@retention_app.command("plan")
def retention_plan_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """What would be deleted now, and why; when the next is due. Changes nothing.

    Example: `strandline retention plan orders 0`
    """
    with NodeClient(url, token_file) as client:
        plan = client.get(f"{partition_path(topic, partition)}/retention/plan")
    _show(plan, as_json=json)
    return ExitCode.OK


@retention_app.command("accept")
def retention_accept_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    accept_percent: Annotated[
        float,
        typer.Option(
            "--accept-percent",
            max=100.0,
            help="Share of the tiered bytes that the next pass may take.",
        ),
    ],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Let the next pass take more than `retention.max_percent`, once. Ask the node that leads.

    Example: `strandline retention accept orders 0 --accept-percent 85`
    """
    path = f"{partition_path(topic, partition)}/retention/accepted-percent"
    with NodeClient(url, token_file) as client:
        plan = client.change("PUT", path, {"percent": accept_percent})
    _show(plan, as_json=json)
    return ExitCode.OK


def _show(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    if plan["segments"]:
        print_table(
            ["segment id", "from", "to", "size", "newest record", "why"],
            [
                (
                    each["segment_id"],
                    each["start_offset"],
                    each["end_offset"],
                    human_bytes(each["size_bytes"]),
                    human_time(each["max_timestamp_ms"]),
                    each["why"],
                )
                for each in plan["segments"]
            ],
        )
    kept_for = time_text(plan["retention_ms"])
    kept_bytes = size_text(plan["retention_bytes"])
    console.print(
        f"in force: time {kept_for}, size {kept_bytes}, by {plan['retention_of']}", markup=False
    )
    console.print(plan["summary"], markup=False)
    if plan["next_due_ms"] is not None:
        console.print(f"the next is due at {human_time(plan['next_due_ms'])}", markup=False)
