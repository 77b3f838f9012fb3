"""The part of an answer that was asked for, by its headers alone."""

from __future__ import annotations

import pytest

from rsm_backends.s3_range_answers import AnswerHead, UnfitAnswerError, wanted_bytes


def part(content_range: str) -> AnswerHead:
    return AnswerHead(206, None, content_range, None, "chunked", None)


def test_a_whole_part_fits_though_the_objects_size_is_not_told() -> None:
    assert wanted_bytes(part("bytes 2-5/*"), 2, 6).size == 4


@pytest.mark.parametrize(("told", "end"), [("bytes 2-4/*", 6), ("bytes 2-5/*", None)])
def test_a_part_that_may_be_cut_short_does_not_fit(told: str, end: int | None) -> None:
    with pytest.raises(UnfitAnswerError, match="Content-Range"):
        wanted_bytes(part(told), 2, end)


def test_a_shorter_part_fits_where_the_object_ends() -> None:
    assert wanted_bytes(part("bytes 2-4/5"), 2, 6).size == 3


def test_a_page_that_anything_in_between_may_answer_is_no_object() -> None:
    page = AnswerHead(200, "9", None, None, None, None)
    for end in (None, 4):
        with pytest.raises(UnfitAnswerError, match="ETag"):
            wanted_bytes(page, 0, end)
    assert wanted_bytes(AnswerHead(200, "9", None, None, None, '"tag"'), 0, 4).size == 4
