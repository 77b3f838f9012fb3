"""Typed fields of foreign JSON."""

from __future__ import annotations

import pytest

from kafka_formats.errors import CorruptData
from rlm.format.json_fields import Fields

FIELDS = Fields(
    {"text": "a", "number": 3, "truth": True, "nothing": None, "inner": {"x": 1}}, "doc", ""
)


def test_fields_of_the_right_type_are_given() -> None:
    assert FIELDS.text("text") == "a"
    assert FIELDS.integer("number") == 3
    assert FIELDS.boolean("truth")
    assert FIELDS.optional_boolean("nothing", default=True)
    assert FIELDS.optional_boolean("truth", default=False)
    assert FIELDS.object("inner").integer("x") == 1
    assert FIELDS.optional_object("nothing") is None
    assert FIELDS.optional_object("inner") is not None
    assert list(FIELDS.names()) == ["text", "number", "truth", "nothing", "inner"]


def test_a_wrong_type_names_the_field_with_its_path() -> None:
    with pytest.raises(CorruptData, match=r"doc at byte 0: inner\.y is missing or not an integer"):
        FIELDS.object("inner").integer("y")
    with pytest.raises(CorruptData, match="number is missing or not a string"):
        FIELDS.text("number")
    with pytest.raises(CorruptData, match="truth is missing or not an integer"):
        FIELDS.integer("truth")
    with pytest.raises(CorruptData, match="text is missing or neither"):
        FIELDS.boolean("text")
    with pytest.raises(CorruptData, match="text is not a JSON object"):
        FIELDS.object("text")
    with pytest.raises(CorruptData, match="number is not between 4 and 5"):
        FIELDS.integer("number", minimum=4, maximum=5)


def test_a_document_that_is_no_object_is_refused() -> None:
    with pytest.raises(CorruptData, match="the document is not a JSON object"):
        Fields([1], "doc", "")
