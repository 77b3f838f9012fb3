"""What an S3 client is made with: the same for the store on the event loop and for plain reads.

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
    """What `create_client` takes, but for the config object: whose, where, trusted by what. Keys
    that are not fixed are the session's to find.
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
        # Else it is put together from twenty parts, twice for each request.
        "user_agent": USER_AGENT,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {
            "addressing_style": config.addressing_style,
            # The CRC32C, which the store checks, stands in the signed headers.
            # A SHA-256 of every body costs more CPU than all the rest together.
            "payload_signing_enabled": config.sign_payloads,
        },
    }


def without_waiting_for_leave(client: Any) -> None:
    """No `Expect: 100-continue`: a server that never answers it would be sent no body at all, and
    the library waits for it without a limit.
    """
    client.meta.events.unregister("before-call.s3", add_expect_header)


@cache
def service_descriptions() -> Loader:
    """What the library's files say of S3, read once a process: 0.1 s of CPU for every client else.
    Credentials are each session's own.
    """
    found: Loader = get_session().get_component("data_loader")
    return found
