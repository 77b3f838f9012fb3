"""The target of an export, from its options. Pure. The options of the tier (`strandline.s3.*`)
apply to the target as well; for a target in a different store, `strandline.target.s3.*` override
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.store_options import S3_OPTION, STORE_OPTION, store_configs
from pipeline.export.target_folder import address_of
from rsm_backends.store_config import StoreConfig

TARGET_OPTION = "strandline.target."
TARGET = "target"


def target_config(location: str, options: Mapping[str, str], env: Mapping[str, str]) -> StoreConfig:
    """The store of a location (s3://bucket/folder or a path); its prefix is the folder."""
    address = address_of(location)
    given: dict[str, str] = {f"{STORE_OPTION}.{TARGET}": address}
    if address.startswith("s3://"):
        own = {name.lower(): value for name, value in options.items()}
        given |= {name: value for name, value in own.items() if name.startswith(S3_OPTION)}
        for name, value in own.items():
            if name.startswith(TARGET_OPTION):
                key = name.removeprefix(TARGET_OPTION)
                if not key.startswith("s3."):
                    raise InvalidRequest(
                        "is unknown; known are the names of strandline.s3.*", field=name
                    )
                given[f"{STORE_OPTION}.{TARGET}.{key}"] = value
    config = store_configs(given, env)[TARGET]
    if config.kind == "s3" and not config.prefix:
        raise InvalidRequest("name a folder in the bucket, not the bucket itself", field="--to")
    return config


def delta_storage_options(config: StoreConfig) -> dict[str, str] | None:
    """The access for deltalake's own client; None for a local folder."""
    if config.kind != "s3":
        return None
    named = {
        "AWS_REGION": config.region,
        "AWS_ENDPOINT_URL": config.endpoint_url,
        "AWS_ACCESS_KEY_ID": config.access_key_id,
        "AWS_SECRET_ACCESS_KEY": config.secret_access_key,
        "AWS_SESSION_TOKEN": config.session_token,
        "AWS_ALLOW_HTTP": "true" if (config.endpoint_url or "").startswith("http://") else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": (
            "true" if config.addressing_style == "virtual" else None
        ),
        # Create-only writes of the commit's number, on which Delta relies; every S3 has them now.
        "conditional_put": "etag",
    }
    return {key: value for key, value in named.items() if value is not None}


def iceberg_file_properties(options: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The access for pyiceberg's own client, as far as the catalog's properties do not give it."""
    own = {name.lower(): value for name, value in options.items()}
    if not any(name.startswith((S3_OPTION, TARGET_OPTION)) for name in own):
        return {}
    config = target_config("s3://any/any", options, env)
    named = {
        "s3.region": config.region,
        "s3.endpoint": config.endpoint_url,
        "s3.access-key-id": config.access_key_id,
        "s3.secret-access-key": config.secret_access_key,
        "s3.session-token": config.session_token,
    }
    return {key: value for key, value in named.items() if value is not None}
