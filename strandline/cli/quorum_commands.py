"""`strandline quorum`: show the metadata quorum and change it, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, RetryLater
from rlmm.rows.feature_level import LEVELS_KNOWN
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import human_time, print_fields, print_table, print_text
from strandline.cli.quantities import parse_wait_ms
from strandline.node import ambient
from strandline.settings.voter_text import parse_voters

ASKED_EVERY_S = 1.0
NODE_ID_MAX = 2**31 - 1
FEATURE_LEVEL_MAX = 2**15 - 1
LEADS_OR_FOLLOWS = ("leader", "follower", "observer")
NodeArgument = Annotated[int, typer.Argument(min=0, max=NODE_ID_MAX, help="Node id.")]

quorum_app = command_group(
    "The metadata quorum: describe it, change its voters, move its leadership."
)


@quorum_app.command("describe")
@asks_node
def describe_command(client: NodeClient) -> Answer:
    """Show leader, epoch, offsets, and the lag of each replica.

    Example: `strandline quorum describe`
    """
    quorum = client.get("/v1/quorum")
    return Answer(quorum, lambda: _print(quorum))


def _print(quorum: dict[str, Any]) -> None:
    heard = quorum["state"] in LEADS_OR_FOLLOWS
    leader = quorum["leader_id"]
    print_fields(
        {
            "answered by": f"node {quorum['node_id']}, {quorum['state']}",
            "leader": leader if heard else None,
            "epoch": quorum["leader_epoch"],
            "high watermark": quorum["high_watermark"],
            "log": f"{quorum['log_start_offset']} to {quorum['log_end_offset']}",
            "applied": quorum["applied_offset"],
            "feature level": quorum["feature_level"],
            "digest": quorum["digest"],
        }
    )
    print_table(
        ["node", "directory", "address", "role", "log end", "lag", "last fetch", "caught up"],
        [
            (
                each["node_id"],
                each["directory_id"],
                each["address"],
                role,
                each["log_end_offset"],
                each["lag"],
                human_time(each["last_fetch_ms"]),
                human_time(each["last_caught_up_ms"]),
            )
            for kind in ("voter", "observer")
            for each in quorum[f"{kind}s"]
            for role in ("leader" if heard and each["node_id"] == leader else kind,)
        ],
    )
    for line in _remarks(quorum):
        print_text(line)


def _remarks(quorum: dict[str, Any]) -> list[str]:
    """Sentences about conditions that an operator should not overlook."""
    found = []
    if quorum["state"] not in LEADS_OR_FOLLOWS:
        found.append("this node knows no leader: describe the quorum on the other nodes (--url)")
    elif quorum["state"] != "leader":
        found.append(
            f"only the leader, node {quorum['leader_id']}, knows the lag of the other replicas"
        )
    if quorum["uncommitted_voter_change"]:
        found.append("a change of voters is not committed yet")
    if quorum["cut_end_offset"] is not None:
        found.append(
            f"the damaged end of this node's log was truncated: the node can't become leader "
            f"before it has fetched the log up to offset {quorum['cut_end_offset']} again"
        )
    if quorum["remembers_nothing"]:
        found.append(
            "this voter was formatted and has followed no leader since. It may have lost records "
            "that it acknowledged, so the first election needs all voters: start the missing ones"
        )
    return found


@quorum_app.command("add-voter")
@asks_node
def add_voter_command(
    client: NodeClient,
    voter: Annotated[
        str,
        typer.Argument(
            help="`id@host:port:directory-id`; the directory id is in the node's meta.properties, "
            "and among the observers of `quorum describe`."
        ),
    ],
) -> Answer:
    """Make an observer a voter, once it has caught up.

    Example: `strandline quorum add-voter 4@strand-4:9481:b-Jc1l2sQ1ySHBQ2a4nIlw`
    """
    found = parse_voters(voter, field="voter")
    if len(found) != 1:
        raise InvalidRequest(
            "add one voter at a time: each change is committed before the next", field="voter"
        )
    endpoint = found[0].endpoints[0]
    body = {
        "node_id": found[0].node_id,
        "directory_id": str(found[0].directory_id),
        "host": endpoint.host,
        "port": endpoint.port,
    }
    quorum = client.change("POST", "/v1/quorum/voters", body)
    return _changed(quorum)


@quorum_app.command("remove-voter")
@asks_node
def remove_voter_command(
    client: NodeClient,
    node_id: NodeArgument,
    directory_id: Annotated[
        str | None, typer.Option(help="Directory id of the voter; default: any.")
    ] = None,
) -> Answer:
    """Remove a voter, also a dead one.

    Refused if too few of the remaining voters are caught up for a majority: start those, or remove
    a dead one first.

    Example: `strandline quorum remove-voter 3`
    """
    quorum = client.change("DELETE", f"/v1/quorum/voters/{node_id}", directory_id=directory_id)
    return _changed(quorum)


@quorum_app.command("transfer")
@asks_node
def transfer_command(
    client: NodeClient,
    node_id: Annotated[
        int | None,
        typer.Argument(
            min=0, max=NODE_ID_MAX, help="Next leader; default: the most caught-up voter."
        ),
    ] = None,
) -> Answer:
    """Transfer the leadership to a different voter.

    Fails, and names the leader, if a third voter wins the election.

    Example: `strandline quorum transfer 2`
    """
    quorum = client.change("POST", "/v1/quorum/transfer", {"node_id": node_id})
    text = f"node {quorum['leader_id']} leads now, in epoch {quorum['leader_epoch']}"
    return Answer(quorum, lambda: print_text(text))


@quorum_app.command("can-stop")
@asks_node
def can_stop_command(
    client: NodeClient,
    node_id: NodeArgument,
    wait: Annotated[
        str | None, typer.Option(help="Repeat the check until the answer is yes, for `2m` at most.")
    ] = None,
) -> Answer:
    """Check that the quorum keeps a majority without a node; exit code 9 if not.

    With `--wait`, the check is repeated after a "no", or while no node answers, until the time is
    over. Any other error ends the command at once.

    Example: `strandline quorum can-stop 2 --wait 2m && ssh strand-2 systemctl restart strandline`
    """
    wait_ms = 0 if wait is None else parse_wait_ms(wait, field="--wait")
    answer = _may_stop(client, node_id, until_ms=ambient.now_ms() + wait_ms)
    word, code = ("yes", ExitCode.OK) if answer["allowed"] else ("no", ExitCode.NO)
    text = f"{word}: {answer['reason']}"
    return Answer(answer, lambda: print_text(text), code)


def _may_stop(client: NodeClient, node_id: int, *, until_ms: int) -> dict[str, Any]:
    """The first answer that is "yes", or the last answer when the time is over."""
    while True:
        in_time = ambient.now_ms() < until_ms
        try:
            answer: dict[str, Any] = client.get(f"/v1/quorum/can-stop/{node_id}")
        except RetryLater:
            if not in_time:
                raise
        else:
            if answer["allowed"] or not in_time:
                return answer
        asyncio.run(ambient.sleep(ASKED_EVERY_S))


@quorum_app.command("finalize")
@asks_node
def finalize_command(
    client: NodeClient,
    feature_level: Annotated[
        int,
        typer.Argument(
            min=1,
            max=FEATURE_LEVEL_MAX,
            help="The level of the new release, as its notes name it. This release knows "
            f"{LEVELS_KNOWN.highest} at most.",
        ),
    ],
    observers_upgraded: Annotated[
        bool,
        typer.Option(
            "--observers-upgraded",
            help="Confirm that the observers run the new release: the leader does not check them.",
        ),
    ] = False,
) -> Answer:
    """Raise the feature level once every node is upgraded; this can't be undone.

    The leader checks that all voters know the level.

    Example: `strandline quorum finalize 2`
    """
    body: dict[str, Any] = {
        "feature_level": feature_level,
        "observers_upgraded": observers_upgraded,
    }
    quorum = client.change("POST", "/v1/quorum/feature-level", body)
    text = f"done; feature level: {quorum['feature_level']}"
    return Answer(quorum, lambda: print_text(text))


@quorum_app.command("accept-cut")
@asks_node
def accept_cut_command(
    client: NodeClient,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Accept the loss of records that only this node's log had."),
    ] = False,
) -> Answer:
    """Let a node vote and lead again after the damaged end of its log was truncated, or after it
    was formatted again.

    Give that node's address with `--url`.

    Example: `strandline quorum accept-cut --url http://127.0.0.1:9480 --yes`
    """
    quorum = client.get("/v1/quorum")
    cut = quorum["cut_end_offset"]
    if (cut is not None or quorum["remembers_nothing"]) and not yes:
        had = "may have lost any number of records" if cut is None else f"had it up to {cut}"
        raise InvalidRequest(
            f"node {quorum['node_id']} has its log up to offset {quorum['log_end_offset']} and "
            f"{had}: records that no other voter has are lost then. First start the voters that "
            "are down; if they are gone for good, give --yes",
            field="--yes",
        )
    quorum = client.change_node("POST", "/v1/quorum/accept-cut")
    return _changed(quorum)


def _changed(quorum: dict[str, Any]) -> Answer:
    ids = ", ".join(str(each["node_id"]) for each in quorum["voters"])
    return Answer(quorum, lambda: print_text(f"done; voters: {ids}"))
