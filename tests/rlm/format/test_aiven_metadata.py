"""Custom metadata that Aiven's plug-in wrote is understood; anybody else's is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, Refused
from rlm.format.aiven_metadata import AivenMetadata, metadata_of
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import segment_keys
from tests.rlm.aiven_writer import custom_metadata
from tests.rlm.planner_facts import segment_row

ROW = segment_row(1, 10, 19)
KEY = segment_keys("", ROW.segment_id, 10).stem.removesuffix(".")
OURS = CustomMetadata("main", 1, 2, 3, 4, 5, 6)


def of(data: bytes | None) -> CustomMetadata | AivenMetadata:
    return metadata_of(replace(ROW, custom_metadata=data))


@pytest.mark.parametrize("data", [None, b"", b"\x00"])
def test_the_plug_in_writes_none_by_default(data: bytes | None) -> None:
    assert of(data) == AivenMetadata()


@given(st.none() | st.integers(0, 63), st.none() | st.text("tier/ä", max_size=20), st.booleans())
def test_every_choice_of_its_fields_is_read(
    size: int | None, prefix: str | None, key: bool
) -> None:
    data = custom_metadata(
        size=size,
        prefix=None if prefix is None else prefix.replace("ä", "a"),
        key=KEY if key else None,
    )
    found = of(data)
    assert isinstance(found, AivenMetadata)
    assert (found.remote_bytes, found.object_key) == (size, KEY if key else None)
    assert found.object_prefix == (None if prefix is None else prefix.replace("ä", "a"))


def test_ours_is_ours_and_damage_to_it_is_told() -> None:
    assert of(OURS.encode()) == OURS
    with pytest.raises(CorruptData, match="checksum"):
        of(OURS.encode()[:-1] + b"\x00")


@pytest.mark.parametrize(
    "data",
    [
        b"of another RemoteStorageManager",
        b"\x01",
        b"\x01\x03\x01x",  # an unknown field
        b"\x01\x00\x01\x01",  # a negative size
        b"\x01\x00\x02\x02\x02",  # bytes behind the size
        b"\x01\x00\x01\x80",
        b"\x01\x01\x01\x00",  # a null string
        b"\x01\x01\x02\x02\xff",
        b"\x00\x00",
        b"\x02\x01\x01\x01\x00\x01\x02",  # not ascending
    ],
)
def test_what_neither_wrote_is_refused_with_what_it_is_and_where(data: bytes) -> None:
    with pytest.raises(Refused, match=f"{ROW.segment_id.id}.*{data[:8].hex()}"):
        of(data)


def test_a_key_that_is_not_the_segments_is_refused() -> None:
    with pytest.raises(Refused, match="other/0/x"):
        of(custom_metadata(key="other/0/x"))
