"""Arguments of an S3 client, equal for the store on the event loop and for blocking reads.

Retries and checksums of the client are off: the retrying decorator and the port's callers do both,
once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.handlers import add_expect_header
from botocore.loaders import Loader
from botocore.session import get_session

from kafka_formats.loopback import is_loopback
from rsm_backends.s3_credentials import are_fixed
from rsm_backends.store_config import StoreConfig

USER_AGENT = "strandline"


def client_arguments(config: StoreConfig) -> dict[str, Any]:
    """The arguments of `create_client` except its config object: endpoint, keys, trusted CA. The
    session finds keys that are not fixed.
    """
    keys = are_fixed(config)
    return {
        "service_name": "s3",
        "region_name": config.region,
        "endpoint_url": config.endpoint_url,
        "aws_access_key_id": config.access_key_id if keys else None,
        "aws_secret_access_key": config.secret_access_key if keys else None,
        "aws_session_token": config.session_token if keys else None,
        "verify": str(config.ca_bundle) if config.ca_bundle is not None else None,
    }


def client_config(config: StoreConfig) -> dict[str, Any]:
    """The fields of botocore's `Config`, which aiobotocore's has too."""
    direct: dict[str, Any] = {"proxies": {}} if is_loopback(config.endpoint_url or "") else {}
    return direct | {
        "connect_timeout": config.connect_timeout_s,
        "read_timeout": config.read_timeout_s,
        "max_pool_connections": config.connections_max,
        "retries": {"total_max_attempts": 1},
        "signature_version": "s3v4",
        # Else it is composed of twenty parts, twice for each request.
        "user_agent": USER_AGENT,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {
            "addressing_style": config.addressing_style,
            # The signed headers contain the CRC32C, which the store checks.
            # A SHA-256 of every body costs more CPU than all the rest together.
            "payload_signing_enabled": config.sign_payloads,
        },
    }


def without_waiting_for_leave(client: Any) -> None:
    """Send no `Expect: 100-continue`: the library would wait without limit, the body unsent, for a
    server that never answers it.
    """
    client.meta.events.unregister("before-call.s3", add_expect_header)


@cache
def service_descriptions() -> Loader:
    """The library's description files of S3, read once per process instead of 0.1 s of CPU for
    every client. Credentials are each session's own.
    """
    found: Loader = get_session().get_component("data_loader")
    return found
