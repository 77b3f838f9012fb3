"""`strandline retention`: what retention would take, and leave to take more at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, human_time, print_json, print_table
from strandline.cli.quantities import size_text, time_text
from strandline.cli.query_answers import PartitionArgument, TopicArgument, partition_path

retention_app = typer.Typer(
    help="What retention takes from a partition's tier: plan, accept, delete-records.",
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


@retention_app.command("delete-records")
def retention_delete_records_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    before: Annotated[int, typer.Option(min=0, help="The first offset that stays.")],
    why: Annotated[str, typer.Option(help="It is recorded with your name.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without it, only say what would go.")
    ] = False,
    topic_id: Annotated[
        str | None, typer.Option(help="Which incarnation of the topic; the newest by default.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Delete all records below an offset from the tier. Ask the node that leads. No way back.

    The broker's own log is not touched: use `kafka-delete-records` for that, first.

    Example: `strandline retention delete-records orders 0 --before 1200 --why "order 7" --yes`
    """
    body: dict[str, object] = {"before_offset": before, "reason": why, "dry_run": not yes}
    path = f"{partition_path(topic, partition)}/retention/delete-records"
    with NodeClient(url, token_file) as client:
        answer = client.change("POST", path, body, topic_id=topic_id)
    if json:
        print_json(answer)
    else:
        console.print(_deletion_text(answer), markup=False)
    return ExitCode.OK


def _deletion_text(answer: dict[str, Any]) -> str:
    start, new = answer["log_start_offset"], answer["new_log_start_offset"]
    if new is None:
        return f"the tier's log start is {start}: nothing below is there to delete"
    text = (
        f"the tier's log start {'would move' if answer['dry_run'] else 'moved'} from {start} to "
        f"{new}: {answer['segment_count']} segments go as a whole, "
        f"{human_bytes(answer['size_bytes'])}"
    )
    if answer["kept_to_offset"] is not None:
        text += (
            f"; the segment that {new} lies in stays in the store until log start passes "
            f"{answer['kept_to_offset']}"
        )
    return text + (". Nothing was changed: say --yes to do it" if answer["dry_run"] else "")


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
