"""`strandline partitions`: list them, and decide about offsets that can't be copied."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_formats.errors import InvalidRequest
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
from strandline.cli.query_commands import partitions_command

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; recorded with your name.")]


class _ListByDefault(TyperGroup):
    """`strandline partitions orders` lists them, as `strandline partitions list orders` does."""

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
def partitions_skip_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    reason: ReasonOption,
    yes: DoItOption = False,
    first: Annotated[
        int | None, typer.Option(min=0, help="First offset; default: what the damage took.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=0, help="Last offset, inclusive.")] = None,
    topic_id: NewestIncarnationOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Give up offsets of a damaged segment that no replica has, so that copying goes on.

    They are recorded as lost, with your name; the rest of the segment is copied. Ask the node
    beside the leader.

    Example: `strandline partitions skip orders 0 --reason "disk of broker 1 died"`, then the same
    with `--yes`
    """
    path = f"{partition_path(topic, partition)}/skip"
    body: dict[str, object] = {"reason": reason, "first_offset": first, "last_offset": last}
    with NodeClient(url, token_file) as client:
        answer = client.change("POST", path, body | {"dry_run": True}, topic_id=topic_id)
        if yes:
            if not answer["ranges"]:
                raise InvalidRequest("there is nothing to skip")
            answer = client.change("POST", path, body | {"dry_run": False}, topic_id=topic_id)
    ranges = ", ".join(f"{r['first_offset']} to {r['last_offset']}" for r in answer["ranges"])
    fields = {"offsets": ranges, "how many": answer["offsets"], "changed": answer["changed"]}
    _print(answer, fields, as_json=json, done=yes)
    return ExitCode.OK


@partitions_app.command("allow-gaps")
def partitions_allow_gaps_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    reason: ReasonOption,
    yes: DoItOption = False,
    topic_id: NewestIncarnationOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Say that offsets without a batch are legal in a partition, for good.

    For what a mirror or a restore filled with its source's offsets, or what was compacted once.

    Example: `strandline partitions allow-gaps orders 0 --reason "mirror of the old cluster" --yes`
    """
    path = f"{partition_path(topic, partition)}/allow-gaps"
    body: dict[str, object] = {"reason": reason, "dry_run": not yes}
    with NodeClient(url, token_file) as client:
        answer = client.change("POST", path, body, topic_id=topic_id)
    fields = {"gaps allowed": answer["gaps_allowed"] or "no", "changed": answer["changed"]}
    _print(answer, fields, as_json=json, done=yes)
    return ExitCode.OK


def _print(answer: dict[str, Any], fields: dict[str, object], *, as_json: bool, done: bool) -> None:
    if as_json:
        print_json(answer)
        return
    name = f"{answer['topic']}-{answer['partition']}"
    print_fields({"partition": name} | fields | {"effect": answer["text"]})
    if not done:
        console.print("nothing was changed: --yes does it", markup=False)
