"""How far a newer leader's log is the tier's, asked question by question."""

from __future__ import annotations

from random import Random

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    append_entry,
    end_offset_for,
    epoch_for_offset,
    truncate_from_end,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading import leaders
from kafka_listener.reading.leaders import Leaders, agreed_until
from kafka_listener.reading.read_port import BrokerLogEnds, EpochEnd

TIP = TopicIdPartition("orders", Uuid(bytes(range(16))), 0)


class Silent:
    async def end_of(self, _: TopicIdPartition, __: int, leader_epoch: int) -> EpochEnd | None:
        return None


def grown(chance: Random, log: Epochs, end: int, epochs: list[int]) -> tuple[Epochs, int]:
    """A log after leaders of these epochs, each of which may lack the newest records."""
    for epoch in epochs:
        end = chance.randint(max(1, end - 6), end)
        log = append_entry(truncate_from_end(log, end), epoch, end)
        end += chance.randint(1, 8)
    return log, end


@pytest.mark.parametrize("seed", range(200))
async def test_two_logs_are_one_up_to_where_their_epochs_part(seed: int) -> None:
    """Two that begin as one, and are led by turns: an epoch is of one leader."""
    chance = Random(seed)
    common, end = grown(chance, (EpochEntry(0, 0),), 5, [1, 2])
    later = chance.sample(range(3, 12), 6)
    tier, tier_end = grown(chance, common, end, sorted(later[:3]))
    log, log_end = grown(chance, common, end, [*sorted(later[3:]), 12])

    async def end_of(epoch: int) -> EpochEnd:
        return EpochEnd(*end_offset_for(log, epoch, log_end))

    found = await agreed_until(tier, end_of)
    same = [epoch_for_offset(tier, at) == epoch_for_offset(log, at) for at in range(tier_end)]
    expected = same.index(False) if False in same else tier_end
    assert found is not None
    assert min(found, tier_end) == min(expected, log_end)


async def test_nothing_is_known_of_epochs_below_the_tiers_first() -> None:
    async def end_of(epoch: int) -> EpochEnd:
        return EpochEnd(epoch - 3, 50)

    assert await agreed_until((EpochEntry(5, 40), EpochEntry(6, 60)), end_of) is None


def test_a_newer_word_on_another_connection_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Leaders(Silent())
    older, newer = BrokerLogEnds(3, 0, 10, 10), BrokerLogEnds(4, 0, 8, 8)
    assert known.newest(TIP, None) is None
    assert known.newest(TIP, older) == older
    assert known.newest(TIP, newer) == newer
    for word in (older, None):
        told = known.newest(TIP, word)
        assert told is not None
        assert (told.leader_epoch, told.is_reachable) == (4, False)
    monkeypatch.setattr(leaders, "PARTITIONS_MAX", 1)
    other = TopicIdPartition("other", TIP.topic_id, 0)
    known.newest(other, newer)
    assert known.newest(TIP, None) is None
