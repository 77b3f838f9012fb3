"""The stores and the access to them, from the options of a data source or a job.

    strandline.store            s3://bucket/folder or file:///path; for a key prefix that is not a
                                folder s3://bucket/?prefix=text
    strandline.store.NAME       the same, for stores that segments name
    strandline.s3.endpoint      of an S3-compatible store; AWS without it
    strandline.s3.region        AWS_REGION, AWS_DEFAULT_REGION or us-east-1 without it
    strandline.s3.path-style    true or false: how the bucket is named in requests
    strandline.s3.ca.file       PEM bundle to trust for https
    strandline.s3.access.key, strandline.s3.secret.key, strandline.s3.session.token
                                the usual AWS look-up (environment, profile, instance) without them
    strandline.s3.compatibility features the store lacks, as a node's `compatibility`, with commas

Spark recognises the names of the keys and redacts their values wherever it shows options.
`strandline.store.NAME.s3.KEY` is `strandline.s3.KEY` for one store. Names are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from kafka_formats.errors import InvalidRequest
from rlm.format.object_keys import check_prefix
from rsm_backends.store_config import COMPATIBILITY, StoreConfig

DEFAULT_STORE = "main"
"""The name of the store of `strandline.store`."""

STORE_OPTION = "strandline.store"
S3_OPTION = "strandline.s3."
TARGET_S3_OPTION = "strandline.target.s3."
"""Start of the options with S3_KEYS for the target of an export."""

S3_KEYS = (
    "endpoint", "region", "path-style", "ca.file", "access.key", "secret.key", "session.token",
    "compatibility",
)  # fmt: skip

_NAMED = re.compile(r"strandline\.store\.(?P<name>[a-z][a-z0-9-]{0,15})(\.s3\.(?P<key>.+))?")


def is_store_option(name: str) -> bool:
    """True if `store_configs` reads or refuses the option."""
    lower = name.lower()
    return lower == STORE_OPTION or lower.startswith((f"{STORE_OPTION}.", S3_OPTION))


def store_configs(options: Mapping[str, str], env: Mapping[str, str]) -> dict[str, StoreConfig]:
    """The stores that `options` name, by name; may be empty.

    Other options are ignored. InvalidRequest names the option that is unknown, malformed, given
    twice or without effect.
    """
    found = StoreOptions.of(options)
    configs = found.addressed(env)
    found.check_used(configs)
    return configs


class StoreOptions:
    """The parsed options about stores."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        s3: Mapping[str, str],
        own: Mapping[str, dict[str, str]],
        *,
        unnamed: bool,
    ) -> None:
        self._addresses = addresses
        self._s3 = s3
        self._own = own
        self._unnamed = unnamed

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Parse the options; InvalidRequest names one that is unknown or given twice."""
        addresses: dict[str, str] = {}
        s3: dict[str, str] = {}
        own: dict[str, dict[str, str]] = {}
        unnamed = False
        for given, value in options.items():
            name = given.lower()
            if not is_store_option(name):
                continue
            if not value.strip():
                raise InvalidRequest("is empty: give a value, or leave it out", field=given)
            if name == STORE_OPTION:
                _once(addresses, DEFAULT_STORE, value, given)
                unnamed = True
                continue
            if name.startswith(S3_OPTION):
                _once(s3, _s3_key(name.removeprefix(S3_OPTION), given), value, given)
                continue
            match = _NAMED.fullmatch(name)
            if match is None:
                raise InvalidRequest(
                    "store names are a letter, then letters, digits and dashes, 16 in all",
                    field=given,
                )
            if match["key"] is None:
                _once(addresses, match["name"], value, given)
            else:
                key = _s3_key(match["key"], given)
                _once(own.setdefault(match["name"], {}), key, value, given)
        return cls(addresses, s3, own, unnamed=unnamed)

    @property
    def has_unnamed(self) -> bool:
        """True if `strandline.store` is given."""
        return self._unnamed

    def addressed(self, env: Mapping[str, str]) -> dict[str, StoreConfig]:
        """The stores with an address among the options."""
        configs = {}
        for name, address in self._addresses.items():
            unnamed = self._unnamed and name == DEFAULT_STORE
            known = _location(address, STORE_OPTION if unnamed else f"{STORE_OPTION}.{name}")
            if known["kind"] == "s3":
                known |= self.access(name, env, known)
            configs[name] = StoreConfig(name=name, **known)
        return configs

    def access(self, name: str, env: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
        """The access to an S3 store, as arguments of StoreConfig: options win over the `known`
        fields, and these over `env`.
        """
        given = {**self._s3, **self._own.get(name, {})}
        found: dict[str, Any] = {
            "endpoint_url": given.get("endpoint")
            or known.get("endpoint_url")
            or env.get("AWS_ENDPOINT_URL_S3")
            or env.get("AWS_ENDPOINT_URL"),
            "region": given.get("region")
            or known.get("region")
            or env.get("AWS_REGION")
            or env.get("AWS_DEFAULT_REGION"),
            "access_key_id": given.get("access.key"),
            "secret_access_key": given.get("secret.key"),
            "session_token": given.get("session.token"),
        }
        if "path-style" in given:
            found["addressing_style"] = _style(given["path-style"])
        if "ca.file" in given:
            found["ca_bundle"] = Path(given["ca.file"])
        if "compatibility" in given:
            found["compatibility"] = _words(given["compatibility"])
        self._check_credentials(found)
        return {key: value for key, value in found.items() if value is not None}

    def _check_credentials(self, found: Mapping[str, Any]) -> None:
        access, secret = found["access_key_id"], found["secret_access_key"]
        if (access is None) != (secret is None):
            missing = "access.key" if access is None else "secret.key"
            raise InvalidRequest(
                "is missing: give both keys, or neither for the usual AWS look-up",
                field=S3_OPTION + missing,
            )
        if found["session_token"] is not None and access is None:
            raise InvalidRequest(
                "has no effect without access.key and secret.key: give all three",
                field=f"{S3_OPTION}session.token",
            )

    def check_used(self, configs: Mapping[str, StoreConfig]) -> None:
        """Raise InvalidRequest for S3 options that apply to no S3 store."""
        s3_stores = {name for name, config in configs.items() if config.kind == "s3"}
        for name, keys in self._own.items():
            if name not in s3_stores:
                raise InvalidRequest(
                    f"no S3 store is named {name!r}: correct the name, or give its address",
                    field=f"{STORE_OPTION}.{name}.s3.{min(keys)}",
                )
        if self._s3 and configs and not s3_stores:
            raise InvalidRequest(
                "has no effect for stores on a file system: leave it out",
                field=S3_OPTION + min(self._s3),
            )


def _once(into: dict[str, str], key: str, value: str, given: str) -> None:
    if key in into:
        raise InvalidRequest("is given twice; names are case-insensitive", field=given)
    into[key] = value


def _s3_key(key: str, given: str) -> str:
    if key not in S3_KEYS:
        raise InvalidRequest(f"is unknown; known are {', '.join(S3_KEYS)}", field=given)
    return key


def _words(value: str) -> frozenset[str]:
    words = frozenset(word.strip() for word in value.split(",") if word.strip())
    if not words <= set(COMPATIBILITY):
        raise InvalidRequest(
            f"takes {', '.join(COMPATIBILITY)}, with commas between them, not {value[:80]!r}",
            field=f"{S3_OPTION}compatibility",
        )
    return words


def _style(value: str) -> str:
    match value.strip().lower():
        case "true":
            return "path"
        case "false":
            return "virtual"
        case _:
            raise InvalidRequest(
                f"must be true or false, not {value[:40]!r}", field=f"{S3_OPTION}path-style"
            )


def _location(address: str, option: str) -> dict[str, Any]:
    """Kind, bucket or path, and prefix of an address, as arguments of StoreConfig."""
    wrong = InvalidRequest(
        f"{address[:80]!r} must look like s3://bucket/prefix or file:///path", field=option
    )
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise wrong from None
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    prefix = query.pop("prefix", None)
    if query or url.fragment or url.username is not None or port is not None:
        raise InvalidRequest(
            "takes s3://bucket/prefix or file:///path; endpoint and keys have options of their own",
            field=option,
        )
    path = unquote(url.path)
    if url.scheme in ("s3", "s3a") and url.netloc:
        return _s3_location(url.netloc, path.strip("/"), prefix, option)
    if url.scheme == "file" and not url.netloc and path.startswith("/"):
        return {
            "kind": "filesystem",
            "path": Path(path),
            "prefix": _checked(prefix or "", option),
        }
    raise wrong


def _s3_location(bucket: str, folder: str, prefix: str | None, option: str) -> dict[str, Any]:
    if prefix is not None and folder:
        raise InvalidRequest("takes a folder or ?prefix=, not both", field=option)
    if prefix is None:
        prefix = f"{folder}/" if folder else ""
    return {"kind": "s3", "bucket": bucket, "prefix": _checked(prefix, option)}


def _checked(prefix: str, option: str) -> str:
    try:
        return check_prefix(prefix)
    except InvalidRequest as error:
        raise InvalidRequest(str(error), field=option) from None
