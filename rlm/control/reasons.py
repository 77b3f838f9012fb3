"""The reasons why work of a node waits or stops: texts, and when they are reported. Pure.

The only table of them. `docs/OPERATIONS.md` shows it, `strandline partitions` uses its words, and a
test requires a row for every reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlm.control.node_problem import ProblemArea
from rlm.control.why_not import WhyNot

SOON_S = 5.0
"""The wait after which most reasons are reported: shorter waits are a change of leader, a restart,
or one repeated request.
"""
LONG_S = 3_600.0
"""The wait after which reasons that are usual for minutes are reported."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a partition is not copied. `says`: its text in tables. `told_after_s`: the time
    after which it becomes a problem of the node, with status, log, metric and alert; None: it is
    normal or wanted.
    """

    says: str
    meaning: str
    action: str
    told_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class AreaReason:
    """The effect of a problem of the whole node, and what to do."""

    stops: str
    action: str


WHY_NOT: dict[WhyNot, Reason] = {
    WhyNot.NO_SEALED_SEGMENT: Reason(
        "up to date", "all sealed segments are copied; the active segment has not rolled",
        "nothing, or lower `segment.ms`; in partitions without writes the node holds the active "
        "segment, and copies it once local retention deletes it (*Holding*, below)",
    ),
    WhyNot.HOLE_IN_LOG: Reason(
        "hole in the local log", "no local segment has the next offset, and later segments exist",
        "a file is missing or the disk damaged: move leadership to a replica that has it", SOON_S,
    ),
    WhyNot.NOT_LEADER: Reason(
        "not leader", "a different broker leads; its node copies", "nothing",
    ),
    WhyNot.WAITING_FOR_LSO: Reason(
        "waits for stable offset", "a transaction is open, or replicas lag",
        "nothing at first; then look for a hanging transaction (`kafka-transactions`)", LONG_S,
    ),
    WhyNot.WAITING_FOR_SLOT: Reason(
        "waits for a slot", "other partitions are copied first, the largest backlog first",
        "nothing, or raise `copier.parallel_max`",
    ),
    WhyNot.BACK_OFF: Reason(
        "backing off", "the last attempt failed; the text has the error",
        "see the store's or the disk's error; it is tried again by itself", SOON_S,
    ),
    WhyNot.BLOCKED: Reason(
        "blocked by corrupt data", "a sealed segment of this replica is damaged, and the other "
        "replicas have not supplied the missing batches yet; copying of the partition waits",
        "*A broker's segment is damaged*, below", 0.0,
    ),
    WhyNot.PAUSED: Reason(
        "paused", "the topic's policy, a setting of the cluster or the node's switch pauses "
                  "copying",
        "the text has the command: `strandline resume copying`, with `--topic`, `--cluster` or "
        "`--node` as it was paused",
    ),
    WhyNot.MODE: Reason(
        "another mode", "the partition's mode is not `sidecar`, or its broker tiers it "
        "(`remote.storage.enable=true`) and may not, or its answer is missing",
        "see the text; `strandline mode set`, if this node is to copy it",
    ),
    WhyNot.DELEGATED: Reason(
        "by the broker", "its broker's own remote log manager copies and expires it, through the "
        "plug-in; this node does the work", "nothing",
    ),
    WhyNot.CLAIM_REFUSED: Reason(
        "claim refused", "the metadata log contradicts this node's broker; the text has the "
                         "difference",
        "if it would cut too much: *A claim that would cut too much*, below", SOON_S,
    ),
    WhyNot.EPOCHS_MISSING: Reason(
        "epochs missing", "the leader-epoch-checkpoint has no entry, or begins above records that "
        "are on the disk: it was lost, and the batches can't replace it (they have different "
        "epochs than the recorded lineage, or the broker does not report its log start)",
        "let another replica lead, or restore the file from one while this broker is down", 90.0,
    ),
    WhyNot.NOT_ADOPTED: Reason(
        "store not recorded", "after a restart from a snapshot: whole segments of the store wait "
                              "for offsets below them that are in the broker's active segment; "
                              "retention and repair of the partition wait, too",
        "nothing, it ends when the broker rolls that segment; or lower `segment.ms`", LONG_S,
    ),
    WhyNot.CLAIMED_ELSEWHERE: Reason(
        "claimed elsewhere", "this node's broker leads, and a different node has the claim",
        "nothing if it ends by itself; else let a different replica lead, or see *A claim that "
        "would cut too much*, below", SOON_S,
    ),
    WhyNot.BROKER_UNAVAILABLE: Reason(
        "broker unavailable", "the broker does not report the leader, or has a different topic id "
                              "than the directory: the topic was deleted or made again, or the "
                              "file is damaged",
        "check the broker, `kafka.broker` and its credentials", SOON_S,
    ),
    WhyNot.METADATA_UNAVAILABLE: Reason(
        "metadata unavailable", "a write to the metadata log had no outcome",
        "bring back a majority of the quorum (`strandline quorum describe`)", SOON_S,
    ),
    WhyNot.CLOCK: Reason(
        "clock in doubt", "the clocks of node and store differ, or were not compared",
        "set the node's clock (NTP); see the problem of the area `clock`", SOON_S,
    ),
    WhyNot.UNUSABLE_DIRECTORY: Reason(
        "unusable directory", "the partition's directory can't be read or understood",
        "the text names the file: permissions, a disk, a checkpoint that its batches contradict",
        SOON_S,
    ),
    WhyNot.EPOCH_NOT_ON_DISK: Reason(
        "epoch not on disk", "the broker leads at an epoch that its checkpoint does not have yet",
        "nothing; if it lasts, `kafka.log_dirs` may name a different broker's directory", 60.0,
    ),
    WhyNot.DIVERGED: Reason(
        "diverged", "the segment is not in the recorded lineage",
        "nothing if a new claim follows; else `strandline claims show`", SOON_S,
    ),
    WhyNot.NOT_SCANNED: Reason(
        "not looked at yet", "the directory or the held segments were not read since the start",
        "nothing; if it lasts, check the disk", 20.0,
    ),
    WhyNot.NO_LEADER_EPOCH: Reason(
        "no leader epoch", "it has no records yet", "nothing",
    ),
    WhyNot.NO_LOCAL_LOG: Reason(
        "no local log", "this node's broker has no replica of it", "nothing",
    ),
    WhyNot.PARTITION_DELETED: Reason(
        "marked for deletion", "its tiered data is being deleted",
        "`strandline topics undo-delete` within the grace",
    ),
    WhyNot.NOT_INCLUDED: Reason(
        "not included", "neither `topics.include` nor a setting of the cluster names it, or one of "
                        "them excludes it: the text says which", "`strandline topics enable`, to "
                                                                 "tier it",
    ),
    WhyNot.COMPACTED: Reason(
        "compacted", "compacted topics are not tiered", "nothing",
    ),
}  # fmt: skip

AREAS: dict[ProblemArea, AreaReason] = {
    ProblemArea.PARTITIONS: AreaReason(
        "copying of the partitions that the text counts; `name` is the reason's `why`",
        "the table above; `strandline partitions --waiting` lists them",
    ),
    ProblemArea.QUORUM: AreaReason(
        "changes of the metadata: claims, ends of copies, deletes; reads go on. With a `name` only "
        "this node's replica, or the listener's clients, are affected",
        "a majority of the voters has to run: `strandline quorum describe`; with a `name` the "
        "text says what to do",
    ),
    ProblemArea.LOG_DIRS: AreaReason(
        "new segments are not found", "mount, permissions or disk of `kafka.log_dirs`"
    ),
    ProblemArea.STORE: AreaReason(
        "copies, reads and deletes in that store",
        "`strandline doctor` tries each step. If the mount of a file system hangs, the text has "
        "the number of calls that hang in it; a stop of the node does not wait for them",
    ),
    ProblemArea.CLOCK: AreaReason(
        "deletes, and the first log start of a partition; deletes alone, if the clocks of node and "
        "store were set ahead together",
        "set the node's clock (NTP); *Clocks that are set ahead together*, below",
    ),
    ProblemArea.HOLD: AreaReason(
        "holding segments that are not yet copied",
        "check room and permissions beside the log directories, or in `hold.dirs`; the text says "
        "more. With a path as `name`, that log directory is not held, or that hold directory is "
        "not used",
    ),
    ProblemArea.SNAPSHOTS: AreaReason(
        "the upload of the metadata's snapshots, from which disaster recovery starts",
        "see the store's error",
    ),
    ProblemArea.AUDIT: AreaReason(
        "deletes: each needs its line in the audit first", "room and disk of `node.data_dir`"
    ),
    ProblemArea.RETENTION: AreaReason(
        "retention of that partition (`name`), or of all of them (no `name`)",
        "look at the policies, then `strandline retention accept`; or see the error",
    ),
    ProblemArea.DELETION: AreaReason(
        "removing segments and partitions that are marked as deleted; with the name `collection` "
        "garbage of such segments",
        "see the store's error; it is tried again by itself. A stopped collection: the text has "
        "the number to accept, until the next one or a restart",
    ),
    ProblemArea.PAUSED: AreaReason(
        "work that was paused on this node or for the cluster; `name` says which",
        "the text has the command that ends the pause",
    ),
    ProblemArea.TOPICS: AreaReason(
        "marking topics that were deleted in Kafka: too many topics are unknown to the brokers at "
        "once",
        "check that `kafka.broker` is of the right cluster",
    ),
    ProblemArea.TASKS: AreaReason(
        "a task of the node that failed or hangs", "restart the node, and report it"
    ),
    ProblemArea.WORKERS: AreaReason(
        "copies and reads that wait for a worker process",
        "memory, open files, a disk that hangs; restart the node if a release was installed since "
        "its start; the text says more",
    ),
    ProblemArea.PLUGIN: AreaReason(
        "copies, deletes and tiered reads of the broker whose plug-in this node refuses, or which "
        "sent no call for a minute; copies of segments that are damaged on its disk",
        "the text says what to do; *A broker that tiers by itself*, below",
    ),
    ProblemArea.NODES: AreaReason(
        "the work of the node whose id is the `name`: it does not fetch the metadata log, or it is "
        "this node and could not register",
        "start it, or `strandline nodes remove`; for this node see the error; *Nodes that know "
        "each other*, below",
    ),
    ProblemArea.READ: AreaReason(
        "Kafka consumers of this read replica, in part",
        "the text says which brokers or ports; *Read replicas*, below",
    ),
    ProblemArea.MIGRATION: AreaReason(
        "a switch of a move from Kafka's own metadata topic, or its way back, and deletes if the "
        "text says so",
        "the text says what to do; *The topic is kept up*, below",
    ),
    ProblemArea.LOG: AreaReason(
        "the node's log: its lines are lost",
        "restart the node so that a process reads its standard error; the text says more",
    ),
    ProblemArea.SCRUB: AreaReason(
        "reads of objects that a scrub found damaged", "*An object is damaged or gone*, below"
    ),
    ProblemArea.DAMAGE: AreaReason(
        "reads that met damage, or a repair that found no whole copy",
        "*An object is damaged or gone*, below",
    ),
}


AS_IT_SHOULD_BE = frozenset(
    {
        WhyNot.NO_SEALED_SEGMENT, WhyNot.NOT_LEADER, WhyNot.NO_LEADER_EPOCH, WhyNot.NO_LOCAL_LOG,
        WhyNot.NOT_INCLUDED, WhyNot.COMPACTED, WhyNot.DELEGATED,
    }
)  # fmt: skip
"""Reasons of partitions that do not wait."""


def says(word: str) -> str:
    """The words in tables; an unknown word, of a newer node, with spaces."""
    return WHY_NOT[WhyNot(word)].says if word in set(WhyNot) else word.replace("_", " ")


def told_after_s(why: WhyNot) -> float | None:
    """Seconds after which it is a problem of the node; None: never."""
    return WHY_NOT[why].told_after_s


def page() -> str:
    """The tables of OPERATIONS."""
    lines = ["| Says | `why` | Meaning | What to do | A problem after |", "|---|---|---|---|---|"]
    for why, reason in WHY_NOT.items():
        after = "never" if reason.told_after_s is None else f"{reason.told_after_s:.0f} s"
        lines.append(
            f"| {reason.says} | `{why.value}` | {reason.meaning} | {reason.action} | {after} |"
        )
    lines += ["", "| `area` | What does not go on | What to do |", "|---|---|---|"]
    lines += [f"| `{area.value}` | {of.stops} | {of.action} |" for area, of in AREAS.items()]
    return "\n".join(lines) + "\n"
