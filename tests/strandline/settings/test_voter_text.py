"""Voters and peers as operators write them."""

from __future__ import annotations

import pytest

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Endpoint, Voter
from strandline.settings.voter_text import parse_address, parse_peer, parse_voters

ONE, TWO = Uuid(b"directory-number"), Uuid(b"directory-secund")


def test_voters_are_read_in_kafkas_form() -> None:
    text = f"2@two.example:9480:{TWO}, 1@[::1]:9481:{ONE}"
    assert parse_voters(text, field="voters") == (
        Voter(1, ONE, (Endpoint("QUORUM", "::1", 9481),)),
        Voter(2, TWO, (Endpoint("QUORUM", "two.example", 9480),)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1@host:9480",
        f"host:9480:{ONE}",
        f"1@host:70000:{ONE}",
        f"1@:9480:{ONE}",
        f"1@host..example:9480:{ONE}",
        f"1@{'h' * 64}.example:9480:{ONE}",
        "1@host:9480:not-an-id",
        f"1@host:9480:{ONE},1@other:9480:{TWO}",
    ],
)
def test_other_texts_name_the_option(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--initial-voters"):
        parse_voters(text, field="--initial-voters")


def test_peers_have_an_id_and_an_address() -> None:
    assert parse_peer("7@10.0.0.1:1", field="f") == (7, "10.0.0.1", 1)
    with pytest.raises(InvalidRequest, match="id@host:port"):
        parse_peer("10.0.0.1:1", field="f")
    assert parse_address("localhost:0", field="f") == ("localhost", 0)
