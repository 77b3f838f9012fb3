"""`strandline quorum`: look at the metadata quorum and change it, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, RetryLater
from rlmm.rows.feature_level import LEVELS_KNOWN
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_time, print_fields, print_json, print_table
from strandline.cli.quantities import parse_wait_ms
from strandline.node import ambient
from strandline.settings.voter_text import parse_voters

ASKED_EVERY_S = 1.0
NODE_ID_MAX = 2**31 - 1
FEATURE_LEVEL_MAX = 2**15 - 1
LEADS_OR_FOLLOWS = ("leader", "follower", "observer")
NodeArgument = Annotated[int, typer.Argument(min=0, max=NODE_ID_MAX, help="Node id.")]

quorum_app = typer.Typer(
    help="The metadata quorum: describe it, change its voters, move its leadership.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@quorum_app.command("describe")
def describe_command(
    url: UrlOption = DEFAULT_URL, token_file: TokenFileOption = None, json: JsonOption = False
) -> int:
    """Leader, epoch, offsets, and each replica's lag.

    Example: `strandline quorum describe`
    """
    with NodeClient(url, token_file) as client:
        quorum = client.get("/v1/quorum")
    if json:
        print_json(quorum)
        return ExitCode.OK
    heard = quorum["state"] in LEADS_OR_FOLLOWS
    leader = quorum["leader_id"]
    print_fields(
        {
            "asked of": f"node {quorum['node_id']}, {quorum['state']}",
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
        console.print(line, markup=False)
    return ExitCode.OK


def _remarks(quorum: dict[str, Any]) -> list[str]:
    """What somebody who looks should not overlook."""
    found = []
    if quorum["state"] not in LEADS_OR_FOLLOWS:
        found.append("this node follows no leader: ask the others, and look at their logs")
    elif quorum["state"] != "leader":
        found.append(f"only the leader, node {quorum['leader_id']}, knows the lag of the others")
    if quorum["uncommitted_voter_change"]:
        found.append("a change of voters is not committed yet")
    if quorum["cut_end_offset"] is not None:
        found.append(
            f"this node's damaged tail was cut: it does not lead before it has fetched up to "
            f"offset {quorum['cut_end_offset']} again"
        )
    if quorum["remembers_nothing"]:
        found.append(
            "this voter was formatted and has followed no leader since: it may have lost what it "
            "acknowledged, and the first election needs all voters. Start those that are down"
        )
    return found


@quorum_app.command("add-voter")
def add_voter_command(
    voter: Annotated[
        str,
        typer.Argument(
            help="`id@host:port:directory-id`; the directory id is in the node's meta.properties, "
            "and among the observers of `quorum describe`."
        ),
    ],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Let an observer vote, once it has caught up. Asked of the leader's node.

    Example: `strandline quorum add-voter 4@strand-4:9481:b-Jc1l2sQ1ySHBQ2a4nIlw`
    """
    found = parse_voters(voter, field="voter")
    if len(found) != 1:
        raise InvalidRequest(
            "one at a time: each change is committed before the next", field="voter"
        )
    endpoint = found[0].endpoints[0]
    body = {
        "node_id": found[0].node_id,
        "directory_id": str(found[0].directory_id),
        "host": endpoint.host,
        "port": endpoint.port,
    }
    with NodeClient(url, token_file) as client:
        quorum = client.change("POST", "/v1/quorum/voters", body)
    return _changed(quorum, as_json=json)


@quorum_app.command("remove-voter")
def remove_voter_command(
    node_id: NodeArgument,
    directory_id: Annotated[
        str | None, typer.Option(help="Of the directory it votes with; whichever by default.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Take a node's vote, a dead one's too. Asked of the leader's node.

    Example: `strandline quorum remove-voter 3`
    """
    with NodeClient(url, token_file) as client:
        quorum = client.change("DELETE", f"/v1/quorum/voters/{node_id}", directory_id=directory_id)
    return _changed(quorum, as_json=json)


@quorum_app.command("transfer")
def transfer_command(
    node_id: Annotated[
        int | None,
        typer.Argument(min=0, max=NODE_ID_MAX, help="Who is to lead; the most caught-up voter."),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Hand leadership to another voter. Asked of the leader's node; fails, and names the leader,
    where another one won the election.

    Example: `strandline quorum transfer 2`
    """
    with NodeClient(url, token_file) as client:
        quorum = client.change("POST", "/v1/quorum/transfer", {"node_id": node_id})
    if json:
        print_json(quorum)
    else:
        console.print(
            f"node {quorum['leader_id']} leads now, in epoch {quorum['leader_epoch']}",
            markup=False,
        )
    return ExitCode.OK


@quorum_app.command("can-stop")
def can_stop_command(
    node_id: NodeArgument,
    wait: Annotated[
        str | None, typer.Option(help="Ask again, for so long at most, until it may: `2m`.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Whether the others go on without a node; exit code 9 when not. Asked of the leader's node.

    With `--wait`, a "no" and a node that does not answer are asked again until the time is over.
    What waiting does not mend, such as a node that does not lead, ends the command at once.

    Example: `strandline quorum can-stop 2 --wait 2m && ssh strand-2 systemctl restart strandline`
    """
    wait_ms = 0 if wait is None else parse_wait_ms(wait, field="--wait")
    with NodeClient(url, token_file) as client:
        answer = _may_stop(client, node_id, until_ms=ambient.now_ms() + wait_ms)
    if json:
        print_json(answer)
    else:
        word = "yes" if answer["allowed"] else "no"
        console.print(f"{word}: {answer['reason']}", markup=False)
    return ExitCode.OK if answer["allowed"] else ExitCode.NO


def _may_stop(client: NodeClient, node_id: int, *, until_ms: int) -> dict[str, Any]:
    """The first "yes", or the last answer once the time is over."""
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
def finalize_command(
    feature_level: Annotated[
        int,
        typer.Argument(
            min=1,
            max=FEATURE_LEVEL_MAX,
            help="The level of the new release, which its notes name. This one knows "
            f"{LEVELS_KNOWN.highest} at most.",
        ),
    ],
    observers_upgraded: Annotated[
        bool,
        typer.Option(
            "--observers-upgraded", help="Observers run the new release, too: they are not asked."
        ),
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Raise the feature level once every node was upgraded; can't be taken back. Asked of the
    leader's node, which asks the voters.

    Example: `strandline quorum finalize 2`
    """
    body: dict[str, Any] = {
        "feature_level": feature_level,
        "observers_upgraded": observers_upgraded,
    }
    with NodeClient(url, token_file) as client:
        quorum = client.change("POST", "/v1/quorum/feature-level", body)
    if json:
        print_json(quorum)
    else:
        console.print(f"done; feature level: {quorum['feature_level']}", markup=False)
    return ExitCode.OK


@quorum_app.command("accept-cut")
def accept_cut_command(
    yes: Annotated[
        bool, typer.Option("--yes", help="What only the cut tail had may be lost.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Let a node vote and lead again whose damaged tail was cut, or that was formatted anew. Asked
    of that node.

    Example: `strandline quorum accept-cut --url http://127.0.0.1:9480 --yes`
    """
    with NodeClient(url, token_file) as client:
        quorum = client.get("/v1/quorum")
        cut = quorum["cut_end_offset"]
        if (cut is not None or quorum["remembers_nothing"]) and not yes:
            had = "has forgotten what it had" if cut is None else f"had it up to {cut}"
            raise InvalidRequest(
                f"node {quorum['node_id']} has its log up to offset {quorum['log_end_offset']} and "
                f"{had}: what no other voter has of that is lost. Bring back the "
                "voters that are down first; if they are gone for good, say --yes",
                field="--yes",
            )
        quorum = client.change("POST", "/v1/quorum/accept-cut")
    return _changed(quorum, as_json=json)


def _changed(quorum: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(quorum)
    else:
        ids = ", ".join(str(each["node_id"]) for each in quorum["voters"])
        console.print(f"done; voters: {ids}", markup=False)
    return ExitCode.OK
