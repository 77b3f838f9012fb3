"""Reads the keys of a profile from an AWS shared credentials file. No message shows a key."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import NamedTuple

from kafka_formats.errors import InvalidRequest

FILE_BYTES_MAX = 1024 * 1024


class AccessKeys(NamedTuple):
    """The credentials that sign a request."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None


def read_access_keys(path: Path, profile: str) -> AccessKeys:
    """The keys of `profile`. InvalidRequest names the file and the missing part."""
    parser = configparser.RawConfigParser()
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise InvalidRequest(f"credentials_file {path} has more than {FILE_BYTES_MAX} bytes")
        parser.read_string(data.decode())
    except OSError as error:
        raise InvalidRequest(f"credentials_file {path} can't be read: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError):
        raise InvalidRequest(
            f"credentials_file {path} is not an AWS shared credentials file: it needs [{profile}] "
            "with aws_access_key_id and aws_secret_access_key"
        ) from None
    try:
        section = parser[profile]
        keys = section["aws_access_key_id"], section["aws_secret_access_key"]
    except KeyError as missing:
        raise InvalidRequest(
            f"credentials_file {path}: profile [{profile}] has no {missing.args[0]}"
        ) from None
    return AccessKeys(*keys, section.get("aws_session_token"))
