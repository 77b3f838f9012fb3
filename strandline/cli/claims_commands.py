"""`strandline claims`: show the claim of a partition, and reset one that blocks the next."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import console, human_bytes, print_fields
from strandline.cli.query_answers import (
    DoItOption,
    NewestIncarnationOption,
    PartitionArgument,
    TopicArgument,
    epochs_text,
    partition_path,
)

claims_app = command_group("The claim of the node that writes a partition: show, reset.")


@claims_app.command("show")
@asks_node
def claims_show_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    topic_id: NewestIncarnationOption = None,
) -> Answer:
    """Show the claim of a partition, and the outcome of this node's next claim.

    Example: `strandline claims show orders 0`
    """
    claim = client.get(f"{partition_path(topic, partition)}/claim", topic_id=topic_id)
    return Answer(claim, lambda: _print(claim))


@claims_app.command("reset")
@asks_node
def claims_reset_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    yes: DoItOption = False,
    cut_at: Annotated[
        int | None, typer.Option(min=0, help="Offset at which the next claim may cut the lineage.")
    ] = None,
    offsets: Annotated[
        int,
        typer.Option(
            min=0, help="Number of copied offsets that this cut removes from the lineage."
        ),
    ] = 0,
    topic_id: NewestIncarnationOption = None,
) -> Answer:
    """Void a claim that blocks the next one, and allow the next one to cut the lineage as far as
    confirmed.

    A claim that would cut more is refused, whichever node makes it. Offsets that are cut off are no
    longer served. Ask the node beside the leader. If the claim cuts, deleting has to be paused for
    the topic; segments that were cut off are not deleted until it is resumed.

    Example: `strandline claims reset orders 0`, then the command that it prints, such as
    `strandline claims reset orders 0 --yes --cut-at 50000 --offsets 250000`
    """
    path = f"{partition_path(topic, partition)}/claim"
    claim = client.get(path, topic_id=topic_id)
    if yes:
        # No claim has the token 0, so the node answers that the partition is not claimed.
        token = 0 if claim["claim"] is None else claim["claim"]["token"]
        body = {"token": token, "cut_at": cut_at, "cut_offsets": offsets}
        claim = client.change("POST", f"{path}/reset", body, topic_id=topic_id)

    def show() -> None:
        _print(claim)
        console.print(_what_next(claim, done=yes), markup=False, soft_wrap=True)

    return Answer(claim, show)


def _what_next(claim: dict[str, Any], *, done: bool) -> str:
    if done:
        return (
            f"reset: the next claim {_reset_text(claim)}. Check with `strandline claims show` "
            "until the claim is in force, and check the remaining segments before you resume "
            "deleting"
        )
    following = claim["next_claim"]
    if claim["reset_refused"] is not None or following is None:
        return "nothing was changed, and a reset would be refused"
    after = following["after_reset"]
    confirm = "--yes"
    if after["cut_at"] is not None:
        confirm += f" --cut-at {after['cut_at']}"
    if after["cut_offsets"]:
        confirm += f" --offsets {after['cut_offsets']}"
    return (
        f"nothing was changed: `strandline claims reset {claim['topic']} {claim['partition']} "
        f"{confirm}` does it"
    )


def _print(claim: dict[str, Any]) -> None:
    last, following = claim["claim"], claim["next_claim"]
    fields: dict[str, object] = {
        "partition": f"{claim['topic']}-{claim['partition']}",
        "mode": claim["mode"],
        "claim": _claim_text(claim, last),
        "lineage": epochs_text(claim["lineage"]),
        "copied up to": claim["highest_copied_offset"],
        "log start": claim["log_start_offset"],
    }
    if following is None:
        fields["next claim"] = f"none by this node: {claim['why_no_next_claim']}"
    else:
        fields["next claim"] = f"at epoch {following['leader_epoch']}: " + _course_text(
            following["as_it_is"]
        )
        fields["its checkpoint"] = epochs_text(following["leader_epoch_checkpoint"])
        fields["after a reset"] = _course_text(following["after_reset"])
    if claim["cut_off_segments"]:
        fields["no longer served then"] = (
            f"{claim['cut_off_segments']} segments, {human_bytes(claim['cut_off_bytes'])}"
        )
    if claim["reset_stands"]:
        fields["reset"] = f"in force until the next claim, which {_reset_text(claim)}"
    elif claim["reset_refused"] is not None:
        fields["reset"] = f"refused: {claim['reset_refused']['text']}"
    print_fields(fields)


def _reset_text(claim: dict[str, Any]) -> str:
    at = claim["reset_cut_at"]
    return "may cut nothing" if at is None else f"may cut at {at} or above"


def _claim_text(claim: dict[str, Any], last: dict[str, Any] | None) -> str:
    if last is None:
        return "never claimed"
    node = last["incarnation"]["node_id"]
    text = f"node {node} at epoch {last['leader_epoch']}, token {last['token']}"
    return text if claim["claim_stands"] else f"{text}, voided"


def _course_text(course: dict[str, Any]) -> str:
    if course["verdict"] not in ("accepted", "no_effect"):
        return f"refused, {course['verdict']}: {course['text']}"
    if course["cut_at"] is None:
        return "accepted, cuts nothing"
    return (
        f"accepted, cuts at {course['cut_at']}: {course['cut_offsets']} copied offsets are "
        f"removed from the lineage, which is then copied up to {course['highest_copied_offset']}"
    )
