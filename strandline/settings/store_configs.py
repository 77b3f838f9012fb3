"""Makes the backends' store configurations of `[stores.NAME]`, and reads credentials files."""

from __future__ import annotations

from kafka_formats.errors import InvalidRequest
from rsm_backends.credentials_file import read_access_keys
from rsm_backends.store_config import StoreConfig, StoreLocation
from strandline.settings.settings import Settings, StoreSettings


def store_configs(settings: Settings) -> dict[str, StoreConfig]:
    """All configured stores by name. Raises InvalidRequest if none is configured, or if a
    credentials file can't be read.
    """
    if not settings.stores:
        raise InvalidRequest(
            "no store is configured: add [stores.main] with kind and bucket (or path)",
            field="stores",
        )
    return {name: _config(name, section) for name, section in settings.stores.items()}


def store_locations(settings: Settings) -> dict[str, StoreLocation]:
    """The locations of the stores, without credentials."""
    return {
        name: StoreLocation(
            kind=section.kind,
            bucket=section.bucket,
            prefix=section.prefix,
            endpoint_url=section.endpoint_url,
            region=section.region,
            addressing_style=section.addressing_style,
            path=section.path,
        )
        for name, section in settings.stores.items()
    }


def _config(name: str, section: StoreSettings) -> StoreConfig:
    key_id, secret, session = None, None, None
    if section.credentials_file is not None:
        key_id, secret, session = read_access_keys(section.credentials_file, section.profile)
    return StoreConfig(
        name=name,
        kind=section.kind,
        bucket=section.bucket,
        prefix=section.prefix,
        endpoint_url=section.endpoint_url,
        region=section.region,
        path=section.path,
        access_key_id=key_id,
        secret_access_key=secret,
        session_token=session,
        credentials_file=section.credentials_file,
        profile=section.profile,
        addressing_style=section.addressing_style,
        sign_payloads=section.sign_payloads,
        compatibility=frozenset(section.compatibility),
        aiven_keys=tuple(section.aiven_keys.items()),
        connect_timeout_s=section.connect_timeout_s,
        read_timeout_s=section.read_timeout_s,
        connections_max=section.connections_max,
        attempts_max=section.attempts_max,
        ca_bundle=section.ca_file,
    )
