"""A named store's location and settings. Picklable, since worker processes get it too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from kafka_formats.errors import InvalidRequest
from kafka_formats.host_names import http_address

StoreKind = Literal["s3", "filesystem", "memory"]
AddressingStyle = Literal["auto", "path", "virtual"]
Compatibility = Literal["delete-md5", "single-deletes", "no-checksums"]
COMPATIBILITY: tuple[Compatibility, ...] = get_args(Compatibility)
"""Features that a store may lack, by the value of the setting:

    delete-md5      DeleteObjects is refused without Content-MD5
    single-deletes  there is no DeleteObjects: objects are deleted one by one
    no-checksums    CRC32C in headers is refused: bodies are sent with Content-MD5 instead
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreLocation:
    """A store's location without credentials, so that it may be passed on."""

    kind: StoreKind
    bucket: str
    prefix: str
    endpoint_url: str | None
    region: str
    addressing_style: AddressingStyle
    path: Path | None


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """One entry of `[stores.NAME]`.

    `prefix` starts every key of this store (the code that makes keys adds it, not the store).
    Without `access_key_id` the AWS default chain is used (environment, profile, instance).
    `endpoint_url` None means AWS itself. `sign_payloads` includes a SHA-256 of every body in the
    request's signature, for stores that refuse UNSIGNED-PAYLOAD. `deadline_s` bounds one call, its
    retries included. With `credentials_file` the keys are read from that file, again when it
    changes; keys given in addition are used as long as the file can't be read. `aiven_keys`: for
    segments that Aiven's plug-in encrypted, ids of key pairs with the files of their private keys.
    """

    name: str
    kind: StoreKind
    bucket: str = ""
    prefix: str = ""
    endpoint_url: str | None = None
    region: str = "us-east-1"
    path: Path | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    credentials_file: Path | None = None
    profile: str = "default"
    addressing_style: AddressingStyle = "auto"
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    connections_max: int = 32
    attempts_max: int = 6
    deadline_s: float = 120.0
    ca_bundle: Path | None = None
    sign_payloads: bool = False
    compatibility: frozenset[Compatibility] = frozenset()
    aiven_keys: tuple[tuple[str, Path], ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidRequest for settings that can never work; it names the setting."""
        where = f"stores.{self.name}"
        if self.kind not in ("s3", "filesystem", "memory"):
            raise InvalidRequest(
                f"must be s3, filesystem or memory, not {self.kind!r}", field=f"{where}.kind"
            )
        if self.kind == "filesystem" and self.path is None:
            raise InvalidRequest("a filesystem store needs a path", field=f"{where}.path")
        if self.kind == "s3":
            self._check_s3(where)
        for name in ("connect_timeout_s", "read_timeout_s", "deadline_s"):
            if not getattr(self, name) > 0:
                raise InvalidRequest("must be above 0", field=f"{where}.{name}")
        for name in ("connections_max", "attempts_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest("must be at least 1", field=f"{where}.{name}")

    def _check_s3(self, where: str) -> None:
        if not self.bucket:
            raise InvalidRequest("an s3 store needs a bucket", field=f"{where}.bucket")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidRequest(
                "give both access_key_id and secret_access_key, or neither",
                field=f"{where}.access_key_id",
            )
        if self.endpoint_url is None:
            return
        url = http_address(self.endpoint_url)
        if url is None:
            raise InvalidRequest("must look like https://host:port", field=f"{where}.endpoint_url")
        if url.username is not None or url.password is not None:
            raise InvalidRequest(
                "must not carry credentials; use access_key_id and secret_access_key",
                field=f"{where}.endpoint_url",
            )
