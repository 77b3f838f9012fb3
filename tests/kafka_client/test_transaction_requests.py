"""The meaning of a broker's error codes for a transactional producer."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from kafka_client.transaction_requests import StillBusyError, raise_for
from kafka_formats.errors import Fenced, InvalidRequest, Refused, RetryLater, StrandlineError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.producer_fenced, Fenced),
        (ErrorCode.invalid_producer_epoch, Fenced),
        (ErrorCode.concurrent_transactions, StillBusyError),
        (ErrorCode.coordinator_not_available, StillBusyError),
        (ErrorCode.transactional_id_authorization_failed, Refused),
        (ErrorCode.message_too_large, InvalidRequest),
        (ErrorCode.not_leader_or_follower, RetryLater),
        (ErrorCode.invalid_producer_id_mapping, RetryLater),
        (ErrorCode.unknown_server_error, RetryLater),
    ],
)
def test_each_code_says_what_to_do(code: ErrorCode, kind: type[StrandlineError]) -> None:
    with pytest.raises(kind, match=f"broker-1:9092 answered {code.name} to EndTxn") as caught:
        raise_for(code, "broker-1:9092", "EndTxn")
    assert type(caught.value) is kind


def test_no_error_is_none() -> None:
    raise_for(ErrorCode.none, "broker-1:9092", "EndTxn")
