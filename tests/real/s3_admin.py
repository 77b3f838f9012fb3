"""What tests do to an S3 server besides storing objects: buckets, policies, limited credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import botocore.session
from botocore.config import Config

from rsm_backends.store_config import StoreConfig


def client(config: StoreConfig, service: str = "s3") -> Any:
    """A plain synchronous client of the server of `config`, with the same credentials."""
    return botocore.session.get_session().create_client(
        service,
        region_name=config.region,
        endpoint_url=config.endpoint_url,
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key,
        aws_session_token=config.session_token,
        config=Config(
            connect_timeout=5,
            read_timeout=30,
            retries={"total_max_attempts": 3},
            s3={"addressing_style": config.addressing_style},
        ),
    )


def make_bucket(config: StoreConfig, *, versioned: bool = False) -> None:
    """Create the bucket of `config`; one that keeps versions if asked to."""
    s3 = client(config)
    s3.create_bucket(Bucket=config.bucket)
    if versioned:
        s3.put_bucket_versioning(
            Bucket=config.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
    s3.close()


def limited(config: StoreConfig, policy: Mapping[str, object]) -> StoreConfig:
    """`config` with temporary credentials (STS) that may do only what `policy` allows."""
    sts = client(config, "sts")
    answer = sts.assume_role(
        RoleArn="arn:aws:iam::000000000000:role/test",
        RoleSessionName="test",
        Policy=json.dumps(policy),
        DurationSeconds=3600,
    )
    sts.close()
    credentials = answer["Credentials"]
    return replace(
        config,
        access_key_id=credentials["AccessKeyId"],
        secret_access_key=credentials["SecretAccessKey"],
        session_token=credentials["SessionToken"],
    )
