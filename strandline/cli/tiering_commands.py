"""`strandline topics enable` and `disable`: which topics are tiered, on all nodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlm.cluster_settings.known_settings import Setting, is_pattern
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.known_topics import AheadOption, check_topic_known
from strandline.cli.output import human_bytes, print_table, print_text
from strandline.cli.setting_changes import WhyOption, change_setting, of_topic
from strandline.cli.whole_cluster import answer_of_all, whole_view

EFFECT_PATH = "/v1/cluster/tiering-effect"

NameArgument = Annotated[str, typer.Argument(help="Topic name or glob pattern: `logs.*`.")]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show the topics that would start or stop, on all nodes; change nothing."
    ),
]


@asks_node
def topics_enable_command(
    client: NodeClient,
    name: NameArgument,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    ahead: AheadOption = False,
) -> Answer:
    """Tier topics from now on, on all nodes, without a restart and whatever their files say.

    A topic's name overrides patterns, and a longer pattern a shorter one. `strandline settings
    remove topics.tiered --topic NAME` undoes it: the nodes' own `topics.include` applies again.

    Example: `strandline topics enable orders --why "the audit needs its history"`
    """
    return _change(client, name, tiered=True, dry_run=dry_run, why=why, ahead=ahead)


@asks_node
def topics_disable_command(
    client: NodeClient,
    name: NameArgument,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    ahead: AheadOption = False,
) -> Answer:
    """Stop tiering topics, on all nodes; the tier keeps what it has of them.

    Copies under way end. Segments that the broker's retention deletes meanwhile are lost to the
    tier.

    Example: `strandline topics disable "logs.debug*" --dry-run`
    """
    return _change(client, name, tiered=False, dry_run=dry_run, why=why, ahead=ahead)


def _change(
    client: NodeClient, name: str, *, tiered: bool, dry_run: bool, why: str, ahead: bool
) -> Answer:
    if not is_pattern(name) and not ahead:
        check_topic_known(client, name, to_change=True)
    effect = whole_view(client, EFFECT_PATH, "topics", name=name, tiered=str(tiered).lower())
    answer: dict[str, Any] = {"setting": None}
    if not dry_run:
        answer = change_setting(client, Setting.TIERED, of_topic(name), tiered, why)

    def show() -> None:
        _print_effect(effect)
        if dry_run:
            print_text("nothing was changed")
        else:
            print_text(f"{name}: {'tiered' if tiered else 'not tiered'} from now on, on all nodes")

    return answer_of_all(effect, show, answer | {"dry_run": dry_run, "effect": effect})


def _print_effect(effect: dict[str, Any]) -> None:
    if not effect["topics"]:
        print_text("no topic on the disks of the nodes begins or ends to be tiered")
        return
    print_table(
        ["topic", "node", "tiering", "partitions", "sealed segments", "size"],
        [
            (
                each["topic"],
                each["node"],
                "begins" if each["tiered"] else "ends",
                each["partitions"],
                each["sealed_segments"],
                human_bytes(each["sealed_bytes"]),
            )
            for each in effect["topics"]
        ],
        names_first=True,
    )
