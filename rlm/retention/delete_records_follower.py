"""Moves the tier's log start after DeleteRecords on the broker, for topics whose policy says so
(`delete_records_watch` decides).

A move that is not proven to be DeleteRecords deletes nothing. It is reported as a problem of the
node if the topic's retention in Kafka is unlimited, since then the broker's log start should not
move.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.errors import Conflict, Fenced, StrandlineError
from kafka_formats.log_names import LOG_SUFFIX, parse_segment_file_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Ambient
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.leadership.leadership import BrokerWord, Leads, LocalLogStart, OwnClaim, TopicConfig
from rlm.local_log.replica_directory import why_another
from rlm.retention.delete_records_watch import Look, Watched, watched
from rlm.retention.expirer import Expirer
from rlmm.partition_state import PartitionState

logger = logging.getLogger(__name__)

LOOKING = "following DeleteRecords on the broker"
WHY = "DeleteRecords on the broker, which the topic's policy follows"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A partition to check, with its claim when the check began."""

    work: PartitionWork
    claim: OwnClaim
    directory: Path


@dataclass(slots=True)
class DeleteRecordsFollower:
    """The task that follows DeleteRecords, one per node with a broker."""

    expirer: Expirer
    broker: BrokerPort
    ambient: Ambient
    known: dict[TopicIdPartition, Watched] = field(default_factory=dict)
    told: dict[TopicIdPartition, str] = field(default_factory=dict)
    failing: dict[TopicIdPartition | None, str] = field(default_factory=dict)
    """The failures of the last pass: of the whole pass (None), or per partition."""
    log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def run(self) -> None:
        """Run passes for as long as the node runs; a failed pass is reported and repeated."""
        while True:
            try:
                await self.run_pass()
                self.log.works(LOOKING)
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                self.failing[None] = str(error) or type(error).__name__
                self.log.failed(LOOKING, error)
            await self.ambient.sleep(self.expirer.around.limits.retention_interval_s)

    async def run_pass(self) -> None:
        """Check each partition whose topic's policy enables it once, and follow DeleteRecords."""
        asked = {each.work.partition: each for each in self._asked()}
        self.known = {tip: each for tip, each in self.known.items() if tip in asked}
        looks = await self._looks(asked) if asked else {}
        for tip, look in looks.items():
            before = self.known.get(tip)
            self.known[tip] = watched(before, look)
            if before is None or before.last.token != look.token:
                logger.info(
                    "DeleteRecords of %s is followed from %d on", tip, look.log_start_offset
                )
        failing = {tip: await self._follow(tip, each) for tip, each in self.known.items()}
        await self._tell()
        self.failing = {tip: text for tip, text in failing.items() if text is not None}

    def problems(self) -> tuple[NodeProblem, ...]:
        """Log starts that moved without proof, and lasting failures."""
        told = tuple(
            NodeProblem(ProblemArea.RETENTION, str(tip), text)
            for tip, text in sorted(self.told.items(), key=lambda each: str(each[0]))
        )
        if not self.failing:
            return told
        tip = min(self.failing, key=str)
        what = "" if tip is None else f"{tip.topic}-{tip.partition}: "
        text = f"{LOOKING} fails and is repeated with each pass: {what}{self.failing[tip]}"
        return (*told, NodeProblem(ProblemArea.RETENTION, LOOKING, text))

    def _asked(self) -> list[_Asked]:
        found = []
        for work in self.expirer.works():
            tip, claim = work.partition, work.claim
            local = work.local
            if claim is None or local is None or not local.is_seen or work.unusable is not None:
                # The broker is asked by name, so the directory has to show that the topic is still
                # the claimed one.
                continue
            if self._is_asked_for(tip):
                found.append(_Asked(work, claim, local.directory))
        return found

    async def _looks(
        self, asked: Mapping[TopicIdPartition, _Asked]
    ) -> dict[TopicIdPartition, Look]:
        """The looks at partitions for which broker and disk answered; the next pass tries the
        others again.
        """
        names = [(tip.topic, tip.partition) for tip in asked]
        led = await self.broker.leadership(names)
        heard = await self.broker.local_log_start(names)
        listed = await asyncio.to_thread(
            _listed, {tip: each.directory for tip, each in asked.items()}
        )
        again = await self.broker.local_log_start(names)
        leads = await self.broker.leadership(names)
        ids = await self.broker.topic_ids(sorted({tip.topic for tip in asked}))
        looks = {}
        for tip, each in asked.items():
            name = tip.topic, tip.partition
            if ids.get(tip.topic, tip.topic_id) != tip.topic_id:
                continue  # a deleted topic's directory stays where its log directory is offline
            there, before, after = listed.get(tip), led.get(name), leads.get(name)
            start = heard.get(name)
            ours = each.work.claim is not None and each.work.claim.token == each.claim.token
            if there is None or not ours or not _leads_throughout(each.claim, before, after):
                continue
            if isinstance(start, LocalLogStart) and start == again.get(name):
                epoch = each.claim.leader_epoch
                looks[tip] = Look(each.claim.token, epoch, *there, start.offset)
        return looks

    async def _follow(self, tip: TopicIdPartition, each: Watched) -> str | None:
        """Follow DeleteRecords; returns the failure, if any."""
        state = self._state(tip, each)
        # Check the policy again, since the look took time. Apply refuses if it changes after this.
        if state is None or not self._is_asked_for(tip):
            return None
        # Offsets above are not copied yet; a later pass follows them.
        before = min(each.proven, state.next_offset)
        if before <= state.log_start_offset:
            return None
        try:
            await self.expirer.delete_records(tip, before, apply=True, why=WHY)
        except (Conflict, Fenced) as error:
            logger.info("DeleteRecords below %d of %s is not followed now: %s", before, tip, error)
        except StrandlineError as error:
            return str(error)
        return None

    async def _tell(self) -> None:
        behind = {}
        for tip, each in self.known.items():
            state = self._state(tip, each)
            if state is not None and each.unproven > state.log_start_offset:
                behind[tip] = each.unproven, state.log_start_offset
        topics = sorted({tip.topic for tip in behind})
        configs = await self.broker.topic_configs(topics) if topics else {}
        told = {}
        for tip, (broker_start, tier_start) in behind.items():
            config = configs.get(tip.topic)
            if not isinstance(config, TopicConfig) or not config.keeps_everything:
                continue
            told[tip] = (
                f"the broker's log of {tip.topic}-{tip.partition} starts at {broker_start}, the "
                f"tier's at {tier_start}, and nothing proves that DeleteRecords moved it: "
                f"`strandline retention delete-records {tip.topic} {tip.partition} --before "
                f"{broker_start}` if it did, `strandline policy set {tip.topic} "
                "--delete-records ignored` to be asked no more"
            )
        for tip in told.keys() - self.told.keys():
            logger.warning("%s", told[tip])
        self.told = told

    def _is_asked_for(self, tip: TopicIdPartition) -> bool:
        policy = self.expirer.metadata.topic_policy(tip.topic).counts_for(tip.topic_id)
        return policy.follow_delete_records

    def _state(self, tip: TopicIdPartition, each: Watched) -> PartitionState | None:
        """The state, while the claim of the look is still ours."""
        state = self.expirer.metadata.partition_state(tip)
        if state is None or state.claim is None or state.claim.token != each.last.token:
            return None
        return state


def _leads_throughout(claim: OwnClaim, before: BrokerWord | None, after: BrokerWord | None) -> bool:
    """True if the broker led in the claim's epoch before and after the other requests."""
    return all(
        isinstance(word, Leads) and word.leader_epoch == claim.leader_epoch
        for word in (before, after)
    )


def _listed(
    directories: Mapping[TopicIdPartition, Path],
) -> dict[TopicIdPartition, tuple[tuple[int, int], Sequence[int]]]:
    """(device, inode) of each directory and the base offsets of its segments. Left out: directories
    that are gone, were replaced meanwhile, or belong to a new topic of the same name. Blocks.
    """
    found = {}
    for tip, directory in directories.items():
        try:
            before, another = _identity(directory), why_another(directory, tip.topic_id)
            bases, again = _bases(directory), _bases(directory)
            after = _identity(directory)
        except OSError:
            continue
        # A listing does not show one instant; if it missed a base, retention's log start at that
        # base would look like DeleteRecords.
        if before == after and bases == again and another is None:
            found[tip] = before, bases
    return found


def _identity(directory: Path) -> tuple[int, int]:
    status = directory.stat()
    return status.st_dev, status.st_ino


def _bases(directory: Path) -> Sequence[int]:
    parsed = map(parse_segment_file_name, os.listdir(directory))
    return sorted(each[0] for each in parsed if each is not None and each[1] == LOG_SUFFIX)
