"""Answers to what a read replica does not do, with errors that make a client stop. Pure."""

from __future__ import annotations

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

NO_PRODUCE = "this is a read replica: produce to the brokers"
NOT_SET = -1
NO_ID = bytes(16)
METADATA_BY_ID = 12
"""The first version of Metadata that can ask for a topic by its id alone."""


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


def asks_by_id_too_early(version: int, body: Values) -> bool:
    """True for a Metadata request with topic ids or without names in a version that has no way to
    answer it: `KafkaApis.handleTopicMetadataRequest` refuses these.
    """
    return version < METADATA_BY_ID and any(
        topic["name"] is None or topic.get("topic_id", NO_ID) != NO_ID
        for topic in body["topics"] or ()
    )


def metadata_refused(body: Values, error: ErrorCode) -> Values:
    """The answer of `MetadataRequest.getErrorResponse`: every topic that is asked for has the
    error, and no broker is named. Clients keep what they knew, and ask again after a pause.
    """
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": NOT_SET,
        "topics": [
            {
                "error_code": error,
                "name": topic["name"] or "",
                "topic_id": topic.get("topic_id", NO_ID),
                "partitions": [],
            }
            for topic in body["topics"] or ()
        ],
    }


def producer_id_refused() -> Values:
    """Fatal to an idempotent or transactional producer; retried is whatever else is not known."""
    return {
        "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "producer_id": NOT_SET,
        "producer_epoch": NOT_SET,
    }
