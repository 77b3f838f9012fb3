"""`strandline quorum`: asked of a real node alone, and of a scripted one in every other state."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from api.http.errors import problem_of
from kafka_formats.errors import Conflict, OutcomeUnknown
from strandline.cli import quorum_commands
from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke
from tests.strandline.conftest import sections

DIRECTORY = "b-Jc1l2sQ1ySHBQ2a4nIlw"


def replica(node_id: int, end: int | None, lag: int | None) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "directory_id": DIRECTORY,
        "address": f"strand-{node_id}:9481",
        "log_end_offset": end,
        "lag": lag,
        "last_fetch_ms": None if end is None else 1_767_225_600_000,
        "last_caught_up_ms": None,
    }


QUORUM: dict[str, Any] = {
    "node_id": 1,
    "state": "leader",
    "leader_id": 1,
    "leader_epoch": 12,
    "high_watermark": 40,
    "log_start_offset": 7,
    "log_end_offset": 42,
    "applied_offset": 39,
    "digest": "ab" * 16,
    "feature_level": 1,
    "uncommitted_voter_change": False,
    "cut_end_offset": None,
    "remembers_nothing": False,
    "voters": [replica(1, 42, 0), replica(2, 40, 2)],
    "observers": [replica(3, None, None)],
}


@dataclass
class Scripted:
    """A node that shows `quorum`, and answers changes with `answer`."""

    url: str = ""
    quorum: dict[str, Any] = field(default_factory=lambda: dict(QUORUM))
    answer: tuple[int, bytes] = (200, json.dumps(QUORUM).encode())
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    before: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Answers to the questions before `quorum`, one after the other."""

    def ask(self, *arguments: object) -> Result:
        return invoke("quorum", *arguments, env={"STRANDLINE_URL": self.url})


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    told = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, shown = told.before.pop(0) if told.before else (200, told.quorum)
            self._answer(status, json.dumps(shown).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            told.asked.append((self.command, self.path, json.loads(body) if body else None))
            self._answer(*told.answer)

        def do_DELETE(self) -> None:
            self.do_POST()

        def _answer(self, status: int, body: bytes) -> None:
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def lines(done: Result) -> list[str]:
    assert done.exit_code == ExitCode.OK, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_describe_shows_every_replica_and_who_leads(scripted: Scripted) -> None:
    shown = lines(scripted.ask("describe"))
    assert "answered by node 1, leader" in shown
    assert "log 7 to 42" in shown
    assert f"1 {DIRECTORY} strand-1:9481 leader 42 0 2026-01-01 00:00:00Z -" in shown
    assert f"2 {DIRECTORY} strand-2:9481 voter 40 2 2026-01-01 00:00:00Z -" in shown
    assert f"3 {DIRECTORY} strand-3:9481 observer - - - -" in shown
    assert shown[-1].startswith("3 ")
    assert json.loads(scripted.ask("describe", "--json").stdout) == QUORUM


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "follower", "leader_id": 2}, "only the leader, node 2, knows"),
        ({"state": "prospective", "leader_id": 2}, "this node knows no leader"),
        ({"uncommitted_voter_change": True}, "not committed yet"),
        ({"cut_end_offset": 77}, "fetched the log up to offset 77 again"),
        ({"remembers_nothing": True}, "the first election needs all voters"),
    ],
)
def test_describe_remarks_on_what_should_not_be_overlooked(
    scripted: Scripted, change: dict[str, Any], words: str
) -> None:
    scripted.quorum |= change
    shown = lines(scripted.ask("describe"))
    assert words in shown[-1]
    assert ("leader -" in shown) == (change.get("state") == "prospective")


def test_changes_are_asked_for_as_the_interface_has_them(scripted: Scripted) -> None:
    for arguments in (
        ("add-voter", f"4@[::1]:9481:{DIRECTORY}"),
        ("remove-voter", 3),
        ("remove-voter", 3, "--directory-id", DIRECTORY),
    ):
        assert lines(scripted.ask(*arguments)) == ["done; voters: 1, 2"]
    assert "leads now, in epoch" in lines(scripted.ask("transfer"))[0]
    assert json.loads(scripted.ask("transfer", 2, "--json").stdout) == QUORUM
    assert lines(scripted.ask("finalize", 2)) == ["done; feature level: 1"]
    scripted.ask("finalize", 2, "--observers-upgraded", "--json")
    four = {"node_id": 4, "directory_id": DIRECTORY, "host": "::1", "port": 9481}
    level = "/v1/quorum/feature-level"
    assert scripted.asked == [
        ("POST", "/v1/quorum/voters", four),
        ("DELETE", "/v1/quorum/voters/3", None),
        ("DELETE", f"/v1/quorum/voters/3?directory_id={DIRECTORY}", None),
        ("POST", "/v1/quorum/transfer", {"node_id": None}),
        ("POST", "/v1/quorum/transfer", {"node_id": 2}),
        ("POST", level, {"feature_level": 2, "observers_upgraded": False}),
        ("POST", level, {"feature_level": 2, "observers_upgraded": True}),
    ]


def test_can_stop_says_no_with_an_exit_code_of_its_own(scripted: Scripted) -> None:
    scripted.quorum = {"node_id": 2, "allowed": True, "reason": "2 other voters keep up"}
    assert lines(scripted.ask("can-stop", 2)) == ["yes: 2 other voters keep up"]
    scripted.quorum = {"node_id": 2, "allowed": False, "reason": "behind or silent: [3]"}
    for arguments, said in (
        (("can-stop", 2), "no: behind or silent: [3]\n"),
        (("can-stop", 2, "--json"), json.dumps(scripted.quorum, indent=2) + "\n"),
    ):
        done = scripted.ask(*arguments)
        assert (done.exit_code, done.stdout) == (ExitCode.NO, said)


def test_can_stop_waits_for_a_yes_and_for_a_leader_but_for_nothing_else(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_commands, "ASKED_EVERY_S", 0)
    no = (200, {"node_id": 2, "allowed": False, "reason": "behind or silent: [3]"})
    no_leader = (503, {"kind": "retry_later", "detail": "no leader"})
    scripted.quorum = {"node_id": 2, "allowed": True, "reason": "2 other voters keep up"}
    scripted.before = [no, no_leader, no]
    assert lines(scripted.ask("can-stop", 2, "--wait", "1m")) == ["yes: 2 other voters keep up"]
    assert scripted.before == []
    scripted.before = [no]
    assert scripted.ask("can-stop", 2, "--wait", "0s").exit_code == ExitCode.NO
    scripted.before = [no_leader]
    assert scripted.ask("can-stop", 2).exit_code == ExitCode.RETRY_LATER
    scripted.before = [no, (409, {"kind": "conflict", "detail": "node 3 leads"})]
    assert scripted.ask("can-stop", 2, "--wait", "1m").exit_code == ExitCode.CONFLICT
    assert scripted.ask("can-stop", 2, "--wait", "soon").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cut_end_offset": 77}, "had it up to 77"),
        ({"remembers_nothing": True}, "may have lost any number of records"),
    ],
)
def test_a_cut_is_not_accepted_before_it_is_said_what_is_lost(
    scripted: Scripted, change: dict[str, Any], words: str
) -> None:
    scripted.quorum |= change
    done = scripted.ask("accept-cut")
    assert done.exit_code == ExitCode.USAGE
    assert words in done.stderr
    assert scripted.asked == []
    assert lines(scripted.ask("accept-cut", "--yes")) == ["done; voters: 1, 2"]
    assert scripted.asked == [("POST", "/v1/quorum/accept-cut", None)]


def test_another_node_than_the_leader_names_the_leader(scripted: Scripted) -> None:
    problem = problem_of(Conflict("ask node 2", reason="NOT_LEADER"))
    scripted.answer = (problem.row.status, problem.body("request-1"))
    done = scripted.ask("remove-voter", 3)
    assert (done.exit_code, "ask node 2" in done.stderr) == (ExitCode.CONFLICT, True)


def test_a_change_without_an_answer_may_have_been_made(scripted: Scripted) -> None:
    scripted.answer = (0, b"")
    done = scripted.ask("remove-voter", 3)
    assert done.exit_code == ExitCode.RETRY_LATER
    assert "may or may not have been made" in done.stderr
    problem = problem_of(OutcomeUnknown("look at the voters"))
    scripted.answer = (problem.row.status, problem.body("request-1"))
    assert scripted.ask("remove-voter", 3).exit_code == ExitCode.RETRY_LATER
    nobody = invoke("quorum", "transfer", "--url", "http://127.0.0.1:1")
    assert (nobody.exit_code, "is the node running" in nobody.stderr) == (7, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add-voter", "4@strand-4:9481"), "id@host:port:directory-id"),
        (("add-voter", f"x@strand-4:9481:{DIRECTORY}"), "id@host:port"),
        (("add-voter", f"4@strand-4:99999:{DIRECTORY}"), "host:port"),
        (("add-voter", f"4@a:1:{DIRECTORY},5@b:1:{DIRECTORY}"), "one voter at a time"),
        (("remove-voter", "x"), "node_id"),
        (("remove-voter", 2**31), "node_id"),
        (("transfer", -1), "No such option"),
        (("can-stop",), "node_id"),
        (("finalize", 0), "feature_level"),
    ],
)
def test_wrong_usage_is_told_and_nobody_is_asked(
    scripted: Scripted, arguments: tuple[object, ...], words: str
) -> None:
    done = scripted.ask(*arguments)
    assert (done.exit_code, words in done.stderr) == (ExitCode.USAGE, True), done.stderr
    assert scripted.asked == []


def test_a_node_alone_describes_itself_and_may_not_stop(node: NodeProcess) -> None:
    def ask(*arguments: object) -> Result:
        return invoke("quorum", *arguments, env={"STRANDLINE_URL": node.url})

    shown = lines(ask("describe"))
    assert "answered by node 1, leader" in shown
    assert sum(" leader " in line and line.startswith("1 ") for line in shown) == 1
    refused = ask("can-stop", 1)
    assert (refused.exit_code, refused.stdout[:3]) == (ExitCode.NO, "no:")
    assert ask("can-stop", 9).exit_code == ExitCode.NOT_FOUND
    assert ask("transfer").exit_code == ExitCode.REFUSED  # whoever has no token only reads


def test_a_node_alone_refuses_changes_that_cannot_be(tmp_path: Path) -> None:
    changed = sections(tmp_path / "tier") | {"http": {"anonymous_role": "admin"}}
    with NodeProcess(tmp_path, changed) as node:
        _refuses_what_cannot_be(node)


def _refuses_what_cannot_be(node: NodeProcess) -> None:
    def ask(*arguments: object) -> Result:
        return invoke("quorum", *arguments, env={"STRANDLINE_URL": node.url})

    assert ask("remove-voter", 1).exit_code == ExitCode.USAGE
    assert ask("remove-voter", 9).exit_code == ExitCode.NOT_FOUND
    assert ask("transfer").exit_code == ExitCode.NOT_FOUND
    unknown = ask("finalize", 3)
    assert unknown.exit_code == ExitCode.CONFLICT
    assert "feature level 3 is not known everywhere: node 1 knows 1 to 2" in unknown.stderr
    assert lines(ask("finalize", 1)) == ["done; feature level: 1"]
    assert ask("accept-cut", "--yes").exit_code == ExitCode.USAGE
    directory = json.loads(ask("describe", "--json").stdout)["voters"][0]["directory_id"]
    again = ask("add-voter", f"1@127.0.0.1:9:{directory}")
    assert again.exit_code == ExitCode.CONFLICT, again.stderr
