"""The commands of a move from Kafka's own metadata topic: start, switch, back, finish, status."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kafka_formats.errors import RetryLater
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, errors, human_time, print_table, print_text
from strandline.cli.report_file import ReportOption, check_report, write_report
from strandline.cli.setting_changes import WhyOption
from strandline.cli.whole_cluster import answer_of_all
from strandline.node import ambient

PATH = "/v1/migration"
WHOLE_PATH = "/v1/cluster/migration"
ASKED_EVERY_S = 0.3
WAITED_MAX_S = 900.0
"""Limit of the wait for the end of an attempt; a node ends it after `metadata.switch_deadline_s`,
long before.
"""

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the reasons against this step; change nothing.")
]


@asks_node
def start_command(
    client: NodeClient,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    report: ReportOption = None,
) -> Answer:
    """Begin a move: until `switch`, nodes do not touch topics that brokers tier.

    Run this before any broker gets the bridge. Kafka's metadata topic stays authoritative. It needs
    feature level 2 (`strandline quorum finalize 2`).

    Example: `strandline migrate start --why "from Kafka's own metadata topic"`
    """
    return _change(client, "kafka", dry_run, why, report)


@asks_node
def switch_command(
    client: NodeClient,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    report: ReportOption = None,
) -> Answer:
    """Make the metadata log authoritative instead of Kafka's metadata topic.

    Brokers pause copying and deleting for about 15 s, reads go on. The topic is read, imported and
    compared. If there is any difference, or if this takes too long, the topic stays authoritative,
    and the exit code is 8.

    Example: `strandline migrate switch --dry-run`
    """
    return _change(client, "switching", dry_run, why, report)


@asks_node
def back_command(
    client: NodeClient,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    report: ReportOption = None,
) -> Answer:
    """Make Kafka's metadata topic authoritative again; since `switch` it was kept up to date.

    Brokers pause as for `switch`, and topic and log are compared first. The exit code is 8 if the
    metadata log stays authoritative, as it does while there is a segment that
    StrandlineStorageManager copied.

    Example: `strandline migrate back --why "brokers go back to Kafka's own class"`
    """
    return _change(client, "back", dry_run, why, report)


@asks_node
def finish_command(
    client: NodeClient,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="End the move; without this, only show the reasons against it."),
    ] = False,
    dry_run: DryRunOption = False,
    why: WhyOption = "",
    report: ReportOption = None,
) -> Answer:
    """End the move for good: Kafka's metadata topic is no longer written; this can't be undone.

    Example: `strandline migrate finish --yes --why "two weeks without trouble"`
    """
    return _change(client, "done", dry_run or not yes, why, report)


@asks_node
def status_command(client: NodeClient) -> Answer:
    """Show the phase of the move, the state of each node and broker, and the progress of an
    attempt.

    Example: `strandline migrate status`
    """
    view = client.get(WHOLE_PATH)
    return answer_of_all(view, lambda: _print_status(view))


def _change(client: NodeClient, phase: str, dry_run: bool, why: str, report: Path | None) -> Answer:
    check_report(report)
    body = {"phase": phase, "why": why, "dry_run": dry_run}
    answer = client.change("PUT", PATH, body)
    if dry_run:
        write_report(report, answer)
        return Answer(
            answer,
            lambda: _print_dry(answer, phase),
            ExitCode.INCOMPLETE if answer["in_the_way"] else ExitCode.OK,
        )
    if phase in _FROZEN:
        answer = _wait(client, answer)
    write_report(report, answer)
    reached = answer["phase"] == _FROZEN.get(phase, phase)
    return Answer(
        answer,
        lambda: _print_changed(answer, ended=phase in _FROZEN),
        ExitCode.OK if reached else ExitCode.INCOMPLETE,
    )


def _print_changed(answer: dict[str, Any], *, ended: bool) -> None:
    _print_phase(answer)
    if ended:
        _print_compared(answer)


_FROZEN = {"switching": "quorum", "back": "kafka"}
"""The phases that end by themselves, with the phase to which each leads."""


def _wait(client: NodeClient, begun: dict[str, Any]) -> dict[str, Any]:
    """Wait for the next phase, with a progress bar on the terminal; returns the view of the node
    with the newest phase, and the comparison. Raises RetryLater after WAITED_MAX_S.
    """
    deadline = ambient.monotonic() + WAITED_MAX_S
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
    )
    with bar if errors.is_terminal else nullcontext():
        task = bar.add_task(begun["phase"], total=1.0)
        while True:
            found: dict[str, Any] = client.get(WHOLE_PATH)
            seen = [each for each in found["seen"] if (each["since"] or -1) >= begun["since"]]
            over = [each for each in seen if each["since"] > begun["since"]]
            if over:
                newest = _without_node(max(over, key=lambda each: int(each["since"])))
                return newest | {"comparison": _comparison(seen, begun["since"])}
            attempts = [each["attempt"] for each in seen if each["attempt"] is not None]
            for attempt in attempts:
                waits = f": {attempt['waits_for']}" if attempt["waits_for"] else ""
                bar.update(task, description=attempt["step"] + waits, completed=attempt["share"])
            if ambient.monotonic() > deadline:
                raise RetryLater(
                    f"the phase {begun['phase']} has not ended yet: see its progress with "
                    "`strandline migrate status`"
                )
            asyncio.run(ambient.sleep(ASKED_EVERY_S))


def _comparison(seen: list[dict[str, Any]], since: int) -> dict[str, Any] | None:
    """The comparison of the node that finished the attempt, which a different node may have begun;
    None if there is none.
    """
    told = (each["comparison"] for each in seen if each["comparison"] is not None)
    mine = [each for each in told if each["since"] == since]
    return max(mine, key=lambda each: len(each["topic"]), default=None)


def _without_node(view: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in view.items() if key != "node"}


def _print_dry(answer: dict[str, Any], phase: str) -> None:
    for each in answer["in_the_way"]:
        print_text(f"reason against it: {each}")
    if not answer["in_the_way"]:
        print_text(f"{answer['phase']} -> {phase}: there is no reason against it")
    print_text("nothing was changed")


def _print_phase(answer: dict[str, Any]) -> None:
    print_text(
        f"phase {answer['phase']} since {human_time(answer['since_ms'])}, by {answer['who']}: "
        f"{answer['why'] or 'no reason given'}"
    )


def _print_compared(answer: dict[str, Any]) -> None:
    """Print the comparison, if the attempt got that far."""
    comparison = answer["comparison"]
    if comparison is None:
        return
    topic = comparison["topic"]

    def sum_of(name: str) -> int:
        return sum(each[name] for each in topic)

    segments = sum(sum(each["segments"].values()) for each in topic)
    print_text(
        f"found equal: {segments} segments of {sum_of('partitions')} partitions, and the highest "
        f"offsets of {sum_of('epochs')} leader epochs, in {len(topic)} partitions of the topic"
    )


def _print_status(view: dict[str, Any]) -> None:
    newest = max(view["seen"], key=lambda each: each["since"] or -1, default=None)
    if newest is None:
        return
    if newest["since"] is None:
        print_text("no move was started")
    else:
        _print_phase(newest)
    print_table(
        ["node", "phase", "broker", "acts by", "in flight", "last call", "plug-in", "attempt"],
        [_row(each) for each in view["seen"]],
    )
    for each in view["seen"]:
        if each["attempt"] is not None and each["attempt"]["waits_for"]:
            console.print(f"node {each['node']} waits for: {each['attempt']['waits_for']}")


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    bridge, attempt = each["bridge"], each["attempt"]
    if bridge is None:
        without = "no bridge" if each["has_broker"] else "no broker"
        told: tuple[object, ...] = (without, "", "", "", "")
    else:
        told = (
            bridge["broker_id"],
            bridge["seen"] or "none yet",
            bridge["outstanding"],
            f"{bridge['age_ms'] / 1000:.1f} s ago",
            bridge["plugin_version"],
        )
    step = "" if attempt is None else f"{attempt['step']} {attempt['share']:.0%}"
    return (each["node"], each["phase"], *told, step)
