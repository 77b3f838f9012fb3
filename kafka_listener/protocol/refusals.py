"""Answers to requests that a read replica refuses, with errors that make a client stop. Pure."""

from __future__ import annotations

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

NO_PRODUCE = "this is a read replica: produce to the brokers"
NOT_SET = -1
NO_ID = bytes(16)
METADATA_BY_ID = 12
"""The first version of Metadata in which a topic can be requested by its id alone."""


def produce_refused(body: Values) -> Values:
    """The answer to a Produce: every partition is refused."""
    return {
        "responses": [
            {
                **{key: topic[key] for key in ("name", "topic_id", "topic") if key in topic},
                "partition_responses": [
                    {
                        "index": each["index"],
                        # This error is not retriable, and clients show its message.
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
    """True for a Metadata request with topic ids, or with topics without a name, in a version that
    cannot answer it: `KafkaApis.handleTopicMetadataRequest` refuses these.
    """
    return version < METADATA_BY_ID and any(
        topic["name"] is None or topic.get("topic_id", NO_ID) != NO_ID
        for topic in body["topics"] or ()
    )


def metadata_refused(body: Values, error: ErrorCode) -> Values:
    """The answer of `MetadataRequest.getErrorResponse`: every requested topic has the error, and no
    broker is listed. Clients keep their earlier metadata, and ask again after a pause.
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
    """The answer to an InitProducerId. CLUSTER_AUTHORIZATION_FAILED stops idempotent and
    transactional producers; errors that they do not know are retried.
    """
    return {
        "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "producer_id": NOT_SET,
        "producer_epoch": NOT_SET,
    }
