"""Stories of a quorum in text: commands in, actions out. `make golden` rewrites them.

A file is comments (`#`), commands (`> ...`) and what the replicas do because of each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlmm.raft.actions import (
    Action,
    AdvanceHighWatermark,
    AppendBatches,
    CommandDone,
    Flush,
    InstallSnapshot,
    LogCut,
    PersistQuorumState,
    ProposalFailed,
    ProposalsCommitted,
    RoleChanged,
    SendRequest,
    SendResponse,
    TruncateTo,
    VotersChanged,
    WaitersDone,
    WaitersFailed,
    Warn,
    WriteSnapshotChunk,
)
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.events import (
    BarrierRequested,
    LogStartAdvanced,
    RequestReceived,
    Shutdown,
    SnapshotTaken,
    TransferLeadership,
)
from rlmm.raft.messages import (
    AddVoterRequest,
    Batch,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    SnapshotId,
    Voter,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from tests.rlmm.raft.story import From, Story, key

GOLDEN = Path(__file__).parent / "golden"
STORIES = sorted(path.name for path in GOLDEN.glob("*.txt"))


def tell(story: Story, line: str) -> None:
    """One command."""
    word, *rest = line.split()
    numbers = [int(each) for each in rest if each.isdigit()]
    match word:
        case "tick":
            story.tick(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        case "deliver":
            story.deliver(*numbers)
        case "drop":
            story.drop(*numbers)
        case "settle":
            story.settle(*numbers)
        case "flush":
            story.flush(numbers[0])
        case "propose":
            story.propose(numbers[0], rest[1])
        case "barrier":
            story.feed(numbers[0], BarrierRequested(rest[1]))
        case "transfer":
            story.feed(numbers[0], TransferLeadership("transfer", key(numbers[1])))
        case "format":
            story.format(numbers[0])
        case "recover":
            story.recover(numbers[0], numbers[1])
        case "snapshot":
            taken = SnapshotTaken(SnapshotId(numbers[1], story.cores[numbers[0]].epoch), numbers[2])
            story.feed(numbers[0], taken)
        case "trim":
            story.feed(numbers[0], LogStartAdvanced(numbers[1]))
        case "write":
            story.write(numbers[0])
        case "shutdown":
            story.feed(numbers[0], Shutdown())
        case "add":
            add = AddVoterRequest(Voter(key(numbers[1])), 5000)
            story.feed(numbers[0], RequestReceived("operator", add))
        case "remove":
            remove = RemoveVoterRequest(key(numbers[1]), 5000)
            story.feed(numbers[0], RequestReceived("operator", remove))
        case _:
            raise AssertionError(f"unknown command: {line}")


def text(node: int, action: Action) -> str:
    return f"  n{node} {_text(action)}"


def _text(action: Action) -> str:
    match action:
        case PersistQuorumState(state):
            voted = state.voted.node_id if state.voted else "-"
            cut = _cut(state.cut)
            return f"persist epoch {state.epoch} leader {_id(state.leader_id)} voted {voted}{cut}"
        case RoleChanged():
            told = " established" if action.established else ""
            leader = f" of n{action.leader_id}" if action.role.value == "follower" else ""
            return f"is {action.role.value}{leader} in epoch {action.epoch}{told}"
        case SendRequest():
            return f"-> n{action.destination} {_request(action)}"
        case SendResponse(From() as origin, response):
            return f"-> n{origin.source} {_response(response)}"
        case SendResponse(_, VoterChangeResponse() as change):
            return f"-> operator {change.error.name} {change.message}".rstrip()
        case AppendBatches():
            return "append " + ", ".join(_batch(batch) for batch in action.batches)
        case Flush():
            return f"flush to {action.offset}"
        case TruncateTo():
            return f"truncate to {action.end_offset}"
        case WriteSnapshotChunk():
            end = action.position + action.payload_bytes
            return f"write {_snapshot(action.snapshot)} bytes {action.position}..{end}"
        case InstallSnapshot():
            return f"install {_snapshot(action.snapshot)} of {action.size_bytes} bytes"
        case AdvanceHighWatermark():
            return f"high watermark {action.high_watermark} apply to {action.apply_to}"
        case ProposalsCommitted():
            return "committed " + ", ".join(f"{name} at {at}" for name, at in action.proposals)
        case ProposalFailed():
            known = "outcome unknown" if action.appended else "not appended"
            return f"failed {action.handle} {action.error.name} {known}"
        case WaitersDone():
            return f"read {', '.join(map(str, action.handles))} at {action.offset}"
        case WaitersFailed():
            return f"no read {', '.join(map(str, action.handles))} {action.error.name}"
        case VotersChanged():
            ids = ", ".join(str(each.node_id) for each in action.voters.keys)
            return f"voters {ids} at {action.offset}"
        case CommandDone():
            return f"done {action.handle} {action.error.name} {action.message}".rstrip()
        case Warn():
            return f"warn {action.message}"
        case _:
            return type(action).__name__


def _id(node_id: int) -> str:
    return "-" if node_id < 0 else str(node_id)


def _cut(cut: LogCut | None) -> str:
    if cut is None:
        return ""
    return " remembers nothing" if cut == NO_MEMORY else f" lacks up to {cut.old_end_offset}"


def _snapshot(snapshot: SnapshotId | None) -> str:
    return f"snapshot {snapshot.end_offset} e{snapshot.epoch}" if snapshot else "no snapshot"


def _batch(batch: Batch) -> str:
    what = "+".join(type(each).__name__ for each in batch.control) or str(batch.payload)
    return f"{what}@{batch.base_offset} e{batch.epoch}"


def _request(action: SendRequest) -> str:
    match action.request:
        case VoteRequest() as vote:
            kind = "pre-vote?" if vote.pre_vote else "vote?"
            told = " all answered" if vote.all_answered else ""
            return f"{kind} epoch {vote.epoch} log {vote.last_offset} e{vote.last_epoch}{told}"
        case FetchRequest() as fetch:
            uncounted = "" if fetch.counts else " not to be counted"
            return f"fetch {fetch.fetch_offset} e{fetch.last_fetched_epoch}{uncounted}"
        case FetchSnapshotRequest() as piece:
            return f"fetch {_snapshot(piece.snapshot)} from byte {piece.position}"
        case BeginQuorumEpochRequest() as begin:
            return f"begin epoch {begin.leader_epoch}"
        case EndQuorumEpochRequest() as end:
            ids = ", ".join(str(each.node_id) for each in end.preferred)
            return f"end epoch {end.leader_epoch} preferred {ids}"
        case other:
            return type(other).__name__


def _response(response: object) -> str:
    match response:
        case VoteResponse():
            granted = "granted" if response.vote_granted else "refused"
            cut = " lacks what it had" if response.tail_was_cut else ""
            return f"{granted} epoch {response.leader_epoch} {response.error.name}{cut}"
        case FetchResponse():
            what = "nothing"
            if response.read is not None:
                what = f"records {response.read.from_offset}..{response.read.end_offset}"
            elif response.diverging is not None:
                what = f"diverging e{response.diverging.epoch} at {response.diverging.end_offset}"
            elif response.snapshot is not None:
                what = f"only {_snapshot(response.snapshot)}"
            return f"{what} hw {response.high_watermark} {response.error.name}"
        case FetchSnapshotResponse():
            end = response.position + (response.read.bytes_max if response.read else 0)
            what = f"bytes {response.position}..{min(end, response.size_bytes)}"
            what += f" of {response.size_bytes}"
            return f"{_snapshot(response.snapshot)} {what} {response.error.name}"
        case _:
            return type(response).__name__


def played(script: str) -> str:
    """The file as it should be."""
    story = Story()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines.append(line)
            before = len(story.transcript)
            tell(story, line[2:])
            lines += [text(node, action) for node, action in story.transcript[before:]]
        elif line.startswith("#") or not line:
            lines.append(line)
        elif line.startswith("voters "):
            numbers = [int(each) for each in line.split() if each.isdigit()]
            observers = line.partition("observers")[2].split()
            watching = tuple(int(each) for each in observers)
            story = Story(tuple(each for each in numbers if each not in watching), watching)
            lines.append(line)
    return "\n".join(lines) + "\n"


def test_there_are_stories() -> None:
    assert len(STORIES) >= 8


@pytest.mark.parametrize("name", STORIES)
def test_the_golden_story_is_what_happens(name: str) -> None:
    path = GOLDEN / name
    now = played(path.read_text())
    if os.environ.get("STRANDLINE_GOLDEN") == "rewrite":
        path.write_text(now)
    assert path.read_text() == now, "run `make golden` and read the difference"
