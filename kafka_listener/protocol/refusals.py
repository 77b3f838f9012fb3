"""Answers to what a read replica does not do, with errors that make a client stop. Pure."""

from __future__ import annotations

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

NO_PRODUCE = "this is a read replica: produce to the brokers"
NOT_SET = -1


def produce_refused(body: Values) -> Values:
    """Every partition of a Produce is refused."""
    return {
        "responses": [
            {
                **{key: topic[key] for key in ("name", "topic_id", "topic") if key in topic},
                "partition_responses": [
                    {
                        "index": each["index"],
                        # Final, and clients show its message.
                        "error_code": ErrorCode.POLICY_VIOLATION,
                        "base_offset": NOT_SET,
                        "error_message": NO_PRODUCE,
                    }
                    for each in topic["partition_data"]
                ],
            }
            for topic in body["topic_data"]
        ]
    }


def producer_id_refused() -> Values:
    """Fatal to an idempotent or transactional producer; retried is whatever else is not known."""
    return {
        "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "producer_id": NOT_SET,
        "producer_epoch": NOT_SET,
    }
