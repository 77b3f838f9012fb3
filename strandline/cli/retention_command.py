"""`strandline retention`: show what would be deleted, and allow more at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, human_time, print_table, print_text
from strandline.cli.quantities import size_text, time_text
from strandline.cli.query_answers import PartitionArgument, TopicArgument, partition_path

retention_app = command_group("Retention of a partition in the tier: plan, accept, delete-records.")


@retention_app.command("plan")
@asks_node
def retention_plan_command(
    client: NodeClient, topic: TopicArgument, partition: PartitionArgument
) -> Answer:
    """Show what would be deleted now, why, and when the next segment is due; changes nothing.

    Example: `strandline retention plan orders 0`
    """
    plan = client.get(f"{partition_path(topic, partition)}/retention/plan")
    return Answer(plan, lambda: _print(plan))


@retention_app.command("accept")
@asks_node
def retention_accept_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    accept_percent: Annotated[
        float,
        typer.Option(
            "--accept-percent",
            max=100.0,
            help="Share of the tiered bytes that the next pass may delete.",
        ),
    ],
    up_to: Annotated[
        int | None,
        typer.Option(
            min=0, help="Log start that `retention plan` shows; left out: it does not move."
        ),
    ] = None,
) -> Answer:
    """Let the next pass do what `retention plan` shows, more than `retention.max_percent`, once.

    The permission ends with the next pass, whatever that does, and with a different policy. What
    the plan says stays, since a later leader's log lacks it, goes with that pass, too.

    Example: `strandline retention accept orders 0 --accept-percent 85 --up-to 1200`
    """
    path = f"{partition_path(topic, partition)}/retention/accepted-percent"
    plan = client.change("PUT", path, {"percent": accept_percent, "up_to_offset": up_to})
    return Answer(plan, lambda: _print(plan))


@retention_app.command("delete-records")
@asks_node
def retention_delete_records_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    before: Annotated[int, typer.Option(min=0, help="The first offset to keep.")],
    why: Annotated[str, typer.Option(help="Reason; it is recorded with your name.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without it, only show what would be deleted.")
    ] = False,
    topic_id: Annotated[
        str | None, typer.Option(help="Topic id; default: the newest topic of this name.")
    ] = None,
) -> Answer:
    """Delete all records below an offset from the tier, for good.

    The broker's own log is not touched: use `kafka-delete-records` for that, first.

    Example: `strandline retention delete-records orders 0 --before 1200 --why "order 7" --yes`
    """
    body: dict[str, object] = {"before_offset": before, "reason": why, "dry_run": not yes}
    path = f"{partition_path(topic, partition)}/retention/delete-records"
    answer = client.change("POST", path, body, topic_id=topic_id)
    return Answer(answer, lambda: print_text(_deletion_text(answer)))


def _deletion_text(answer: dict[str, Any]) -> str:
    start, new = answer["log_start_offset"], answer["new_log_start_offset"]
    if new is None:
        return f"the tier's log start is {start}: there is nothing below it to delete"
    text = (
        f"the tier's log start {'would move' if answer['dry_run'] else 'moved'} from {start} to "
        f"{new}: {answer['segment_count']} whole segments are deleted, "
        f"{human_bytes(answer['size_bytes'])}"
    )
    if answer["kept_to_offset"] is not None:
        text += (
            f"; the segment that contains {new} stays in the store until the log start passes "
            f"{answer['kept_to_offset']}"
        )
    if answer["held_back"] is not None:
        return f"{text}. Nothing was changed, and --yes is refused now: {answer['held_back']}"
    return text + (". Nothing was changed: say --yes to do it" if answer["dry_run"] else "")


def _print(plan: dict[str, Any]) -> None:
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
    print_text(f"retention in force: time {kept_for}, size {kept_bytes}, by {plan['retention_of']}")
    print_text(plan["summary"])
    if plan["accepted"] is not None:
        print_text(plan["accepted"])
    elif plan["brake"] is not None:
        start = plan["new_readable_offset"]
        up_to = "" if start is None else f" --up-to {start}"
        print_text(
            f"if all of it is to go: `strandline retention accept {plan['topic']} "
            f"{plan['partition']} --accept-percent 100{up_to}`"
        )
    if plan["next_due_ms"] is not None:
        print_text(f"the next is due at {human_time(plan['next_due_ms'])}")
