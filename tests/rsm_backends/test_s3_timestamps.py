"""The quick reading of a store's times is botocore's."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from botocore.utils import parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

from rsm_backends.s3_timestamps import parsed_timestamp

TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 1)).map(
    lambda time: time.replace(tzinfo=UTC)
)


@given(TIMES)
def test_the_forms_that_stores_use_mean_the_same_time(time: datetime) -> None:
    seconds = time.replace(microsecond=0)
    for text, expected in (
        (format_datetime(seconds, usegmt=True), seconds),
        (time.strftime("%Y-%m-%dT%H:%M:%SZ"), seconds),
        (time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z", None),
        (time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), time),
    ):
        found = parsed_timestamp(text)
        assert found == parse_timestamp(text)
        assert expected is None or found == expected
        assert found.utcoffset() is not None


OTHERS = """
0
1700000000
1.5
x
20240203
Oct 2009
2024-02-30T00:00:00Z
2024-02-03T24:00:00Z
2024-02-03T04:05:06+02:00
2024-02-03T04:05:06.1234567Z
Wed, 99 Oct 2009 17:50:00 GMT
Wed, 12 Xyz 2009 17:50:00 GMT
Wed, 12 Oct 2009 17:50:00 +0200
"""


@pytest.mark.parametrize("text", OTHERS.split("\n"))
def test_any_other_text_is_what_botocore_makes_of_it(text: str) -> None:
    try:
        expected = parse_timestamp(text)
    except ValueError:
        with pytest.raises(ValueError, match=r".*"):
            parsed_timestamp(text)
    else:
        assert parsed_timestamp(text) == expected
