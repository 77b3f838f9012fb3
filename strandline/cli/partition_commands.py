"""`strandline partitions`: list them, and decide about offsets that can't be copied."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_formats.errors import InvalidRequest
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.output import print_effect
from strandline.cli.query_answers import (
    DoItOption,
    NewestIncarnationOption,
    PartitionArgument,
    TopicArgument,
    partition_path,
)
from strandline.cli.query_commands import partitions_command

ReasonOption = Annotated[
    str, typer.Option("--reason", help="Reason; it is recorded with your name.")
]


class _ListByDefault(TyperGroup):
    """A group in which `strandline partitions orders` means `strandline partitions list orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known else ["list", *args])


partitions_app = typer.Typer(
    cls=_ListByDefault,
    help="Partitions: list (the default), skip, allow-gaps.",
    add_completion=False,
    rich_markup_mode="markdown",
)
partitions_app.command("list")(partitions_command)


@partitions_app.command("skip")
@asks_node
def partitions_skip_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    reason: ReasonOption,
    yes: DoItOption = False,
    first: Annotated[
        int | None,
        typer.Option(min=0, help="First offset; default: all offsets that the damage took."),
    ] = None,
    last: Annotated[int | None, typer.Option(min=0, help="Last offset, inclusive.")] = None,
    offsets: Annotated[
        str | None, typer.Option(help="The ranges that it prints without `--yes`: 100-120,130-131.")
    ] = None,
    topic_id: NewestIncarnationOption = None,
) -> Answer:
    """Skip offsets of a damaged segment that no replica has, so that copying goes on.

    The offsets are recorded as lost, with your name; the rest of the segment is copied.

    Example: `strandline partitions skip orders 0 --reason "disk of broker 1 died"`, then the same
    with what that prints, such as `--offsets 100-120 --yes`: no other offsets are skipped
    """
    path = f"{partition_path(topic, partition)}/skip"
    body: dict[str, object] = {"reason": reason, "first_offset": first, "last_offset": last}
    if offsets is not None:
        body["ranges"] = _ranges_of(offsets)
    elif yes and first is None and last is None:
        raise InvalidRequest(
            "say what to give up: without --yes it prints the --offsets to add, or give --first "
            "and --last"
        )
    answer = client.change("POST", path, body | {"dry_run": not yes}, topic_id=topic_id)
    shown = ",".join(f"{r['first_offset']}-{r['last_offset']}" for r in answer["ranges"])
    fields = {"offsets": shown, "how many": answer["offsets"], "changed": answer["changed"]}
    if not yes:
        fields["why"] = answer["why"]
    if not yes and first is None:
        fields["to do it"] = f"add --offsets {shown} --yes"
    return Answer(answer, lambda: _print(answer, fields, done=yes))


def _ranges_of(text: str) -> list[dict[str, int]]:
    """Ranges of offsets such as "100-120,130-131", both ends inclusive."""
    ranges = []
    for each in text.split(","):
        first, dash, last = each.strip().partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            raise InvalidRequest(f"{each[:40]!r} is not a range of offsets, such as 100-120")
        ranges.append({"first_offset": int(first), "last_offset": int(last)})
    return ranges


@partitions_app.command("allow-gaps")
@asks_node
def partitions_allow_gaps_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    reason: ReasonOption,
    yes: DoItOption = False,
    topic_id: NewestIncarnationOption = None,
) -> Answer:
    """Record that a partition may have offsets without a batch, for good.

    Use it if a mirror or a restore kept the offsets of its source, or the topic was compacted in
    the past.

    Example: `strandline partitions allow-gaps orders 0 --reason "mirror of the old cluster" --yes`
    """
    path = f"{partition_path(topic, partition)}/allow-gaps"
    body: dict[str, object] = {"reason": reason, "dry_run": not yes}
    answer = client.change("POST", path, body, topic_id=topic_id)
    fields = {"gaps allowed": answer["gaps_allowed"] or "no", "changed": answer["changed"]}
    return Answer(answer, lambda: _print(answer, fields, done=yes))


def _print(answer: dict[str, Any], fields: dict[str, object], *, done: bool) -> None:
    name = f"{answer['topic']}-{answer['partition']}"
    print_effect({"partition": name} | fields | {"effect": answer["text"]}, done=done)
