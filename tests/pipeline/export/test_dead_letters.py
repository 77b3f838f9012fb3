"""Records that can't be exported, in a table of their own: each of them once, whoever shares it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_formats.errors import Conflict
from pipeline.export.export_task import Decode, Decoded
from pipeline.export.table_schema import dead_letter_schema
from tests.pipeline.export.export_world import FORMATS, NAME, Killed, World, segment


@dataclass(frozen=True)
class OddOnesAreBad:
    """Needs no registry."""

    def start(self) -> Decode:
        return self._decode

    @staticmethod
    def _decode(batch: pa.RecordBatch) -> Decoded:
        odd = pa.array([offset % 2 == 1 for offset in batch.column("offset").to_pylist()])
        even = pa.array([not each for each in odd.to_pylist()])
        bad = batch.filter(odd)
        columns = [*bad.columns, pa.array(["odd"] * len(bad), pa.string())]
        return Decoded(
            batch.filter(even), pa.RecordBatch.from_arrays(columns, schema=dead_letter_schema())
        )


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., World]:
    """Tables in folders of their own, with one place for dead letters."""

    def make(root: str, first: int, last: int, *, dead: str = "dead") -> World:
        return World(
            request.param,
            tmp_path / root,
            segments=[segment(first, last)],
            decoding=OddOnesAreBad(),
            attempts=first,
            dead_root=tmp_path / dead,
        )

    return make


def dead_offsets(world: World) -> list[object]:
    return world.offsets("_dead_letters")


def test_tables_of_one_name_may_share_a_place_for_dead_letters(
    made: Callable[..., World],
) -> None:
    one, other = made("one", 0, 9), made("other", 100, 109)
    assert one.run().done.dead_letters == 5
    assert other.run().done.dead_letters == 5
    other.segments.append(segment(110, 113))
    with pytest.raises(Killed):
        other.run(kill_behind="commit")
    one.segments.append(segment(10, 13))
    one.run()
    other.run()
    other.run()
    assert dead_offsets(one) == [*range(1, 14, 2), *range(101, 114, 2)]
    assert one.data_files("_dead_letters") == one.named_files("_dead_letters")


def test_a_table_made_anew_keeps_no_dead_letter_of_its_own_back(
    made: Callable[..., World],
) -> None:
    made("table", 0, 9).run()
    again = made("table", 100, 109)
    shutil.rmtree(again.root)
    again.run()
    assert dead_offsets(again) == [*range(1, 10, 2), *range(101, 110, 2)]


def test_a_copy_of_a_table_does_not_take_over_its_dead_letters(made: Callable[..., World]) -> None:
    world = made("table", 0, 9)
    if world.format == "iceberg":
        pytest.skip("its files say where the table is")
    world.run()
    copy = made("copy", 0, 9)
    shutil.copytree(world.root, copy.root)
    for each in (world, copy):
        each.segments.append(segment(10, 19))
    world.run()
    with pytest.raises(Conflict, match="a copy or was rolled back") as caught:
        copy.run()
    assert caught.value.reason == "DEAD_LETTERS"
    assert copy.offsets() == list(range(0, 10, 2))
    assert dead_offsets(world) == list(range(1, 20, 2))


def test_dead_letters_that_an_earlier_release_committed_are_not_committed_again(
    made: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made("table", 0, 9)
    with monkeypatch.context() as earlier:
        earlier.setattr("tests.pipeline.export.export_world.dead_letters_log", lambda name, _: name)
        with pytest.raises(Killed):
            world.run(kill_behind="dead-letters")
    world.segments.append(segment(10, 13))
    world.run()
    assert world.dead_log != NAME
    assert dead_offsets(world) == list(range(1, 14, 2))


def killed_before_its_dead_letters(made: Callable[..., World]) -> World:
    world = made("table", 0, 9)
    with pytest.raises(Killed):
        world.run(kill_behind="commit")
    world.segments.append(segment(10, 13))
    return world


def test_a_run_with_another_place_for_dead_letters_leaves_a_killed_one_to_its_own(
    made: Callable[..., World], tmp_path: Path
) -> None:
    world = killed_before_its_dead_letters(made)
    place = "lake.orders_dead_letters" if world.format == "iceberg" else str(world.dead_root)
    world.dead_root = tmp_path / "elsewhere"
    with pytest.raises(Conflict, match=f"They are in .*{place}.* nothing was committed") as caught:
        world.run()
    assert caught.value.reason == "DEAD_LETTERS"
    assert world.offsets() == list(range(0, 10, 2))
    assert world.named_files("_dead_letters") == []

    world.dead_root = tmp_path / "dead"
    world.run()
    assert dead_offsets(world) == list(range(1, 14, 2))
    world.dead_root = tmp_path / "elsewhere"
    world.segments.append(segment(14, 17))
    world.run()
    assert dead_offsets(world) == [15, 17]


def test_a_run_without_a_place_for_dead_letters_does_not_pass_over_a_killed_ones(
    made: Callable[..., World],
) -> None:
    world = killed_before_its_dead_letters(made)
    decoding, world.decoding = world.decoding, None
    with pytest.raises(Conflict, match="this run's go to nowhere: nothing was committed"):
        world.run()
    world.decoding = decoding
    world.run()
    assert dead_offsets(world) == list(range(1, 14, 2))


def test_dead_letters_whose_place_is_gone_are_given_up_as_the_message_says(
    made: Callable[..., World], tmp_path: Path
) -> None:
    world = killed_before_its_dead_letters(made)
    shutil.rmtree(tmp_path / "dead")
    with pytest.raises(Conflict, match=r"first remove the objects (/\S+)/(\S+)\*") as caught:
        world.run()
    told = re.search(r"first remove the objects (/\S+)/(\S+\*)", str(caught.value))
    assert told is not None
    for each in Path(told[1]).glob(told[2]):
        each.unlink()
    world.run()
    assert world.offsets() == list(range(0, 14, 2))
    assert dead_offsets(world) == [11, 13]


def test_the_record_of_an_earlier_release_goes_by_where_the_files_are(
    made: Callable[..., World], tmp_path: Path
) -> None:
    world = killed_before_its_dead_letters(made)
    (record,) = world.root.rglob("*.files")
    document = json.loads(record.read_bytes())
    del document["dead_place"]
    record.write_text(json.dumps(document))
    world.dead_root = tmp_path / "elsewhere"
    with pytest.raises(Conflict, match="the place given to that run"):
        world.run()
    world.dead_root = tmp_path / "dead"
    world.run()
    assert dead_offsets(world) == list(range(1, 14, 2))
