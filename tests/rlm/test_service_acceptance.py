"""What an admin accepts of retention, in a service: for the plan that was shown, for one pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from rlm.retention import expirer as expirer_module
from rlm.retention.acceptance import AskedAcceptance
from rlmm.partition_state import TopicPolicy
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide, expire, log_start
from tests.rlm.virtual_time import run_virtually


def test_an_acceptance_is_for_what_was_shown_and_ends_with_the_next_pass(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(*range(0, 110, 10), 110, end=115)
    everything = AskedAcceptance(100.0, 110, "eve")

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer

            def finished() -> int:
                return len(node.finished(log.partition))

            with pytest.raises(Conflict) as refused:  # before the policy is set
                await expirer.accept(log.partition, everything)
            assert refused.value.reason == "NOT_NEEDED"

            # Another policy stands by the time of the pass.
            await decide(node, EVERYTHING_IS_OLD)
            await expirer.accept(log.partition, everything)
            await decide(node, replace(EVERYTHING_IS_OLD, retention_bytes=1))
            await expire(node)
            assert (finished(), expirer.accepted_text(log.partition)) == (11, None)

            # The next pass has nothing to do, and uses it up.
            await expirer.accept(log.partition, everything)
            await decide(node, TopicPolicy())
            await expire(node)
            await decide(node, EVERYTHING_IS_OLD)
            await expire(node)
            assert (finished(), expirer.accepted_text(log.partition)) == (11, None)

            # Deleting is held back in the next pass.
            await expirer.accept(log.partition, everything)
            await decide(node, replace(EVERYTHING_IS_OLD, delete_paused=True))
            with pytest.raises(Conflict) as refused:
                await expirer.accept(log.partition, everything)
            assert refused.value.reason == "HELD_BACK"
            await expire(node)
            await decide(node, EVERYTHING_IS_OLD)
            await expire(node)
            assert (finished(), log_start(node, log)) == (11, 0)
            await node.assert_quiesced()

    run_virtually(main)


def test_what_lies_below_log_start_goes_while_retention_of_the_node_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expirer_module, "NODE_BRAKE_SEGMENTS_MIN", 10)
    log_dir, logs = new_log_dir(tmp_path / "kafka"), list[KafkaLog]()
    for number in range(3):
        logs.append(KafkaLog.create(log_dir, f"orders-{number}", entries=((0, 0),)))
        logs[-1].write(*range(10), end=10)
    erased = logs[0].partition

    async def main() -> None:
        async with new_world(tmp_path, (log_dir,)).boot() as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            await expirer.delete_records(erased, 9, apply=True)
            for log in logs[1:]:
                await decide(node, EVERYTHING_IS_OLD, topic=log.partition.topic)
            await expire(node)
            assert "of 3 partitions" in expirer.stopped[None]
            told = [each for each in node.remote_log.node_problems() if each.area == "retention"]
            assert [(each.name, each.text) for each in told] == [(None, expirer.stopped[None])]
            assert [len(node.rows(log.partition)) for log in logs] == [0, 9, 9]
            await node.assert_quiesced()

    run_virtually(main)


def test_a_node_without_the_claim_names_the_one_that_has_it(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, end=15)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            here, identity = node.parts.expirer, node.parts.expirer.around.identity
            nine = replace(identity, incarnation=replace(identity.incarnation, node_id=9))
            there = replace(here, works=tuple, around=replace(here.around, identity=nine))
            for expirer, holder in (
                (there, identity.incarnation.node_id),
                (replace(here, works=tuple), None),  # it lost the claim and does not know it yet
            ):
                with pytest.raises(Conflict, match="has no claim of") as refused:
                    await expirer.delete_records(log.partition, 5, apply=True)
                assert (refused.value.reason, refused.value.ask_node) == ("NOT_CLAIMED", holder)
            await node.remote_log.close()

    run_virtually(main)
