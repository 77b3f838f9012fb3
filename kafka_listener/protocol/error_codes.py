"""Kafka's error codes that a read replica gives itself. Pure."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """By Kafka's names."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    COORDINATOR_NOT_AVAILABLE = 15
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    FETCH_SESSION_ID_NOT_FOUND = 70
    OFFSET_NOT_AVAILABLE = 78
    UNSUPPORTED_ENDPOINT_TYPE = 115
