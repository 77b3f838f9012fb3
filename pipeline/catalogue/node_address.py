"""The address of the node to ask and its access, from the options of a data source or a job.

strandline.url          http://host:port of any node
strandline.token.file   file with a bearer token of role read; STRANDLINE_TOKEN without it
strandline.ca.file      PEM bundle to trust for https
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.errors import InvalidRequest
from kafka_formats.host_names import http_address

URL_OPTION = "strandline.url"
TOKEN_FILE_OPTION = "strandline.token.file"  # noqa: S105  the name of an option
CA_FILE_OPTION = "strandline.ca.file"
TOKEN_VARIABLE = "STRANDLINE_TOKEN"  # noqa: S105  the name of a variable
NODE_OPTIONS = (URL_OPTION, TOKEN_FILE_OPTION, CA_FILE_OPTION)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node's HTTP interface. Never shows its token."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None


def node_address(options: Mapping[str, str], env: Mapping[str, str]) -> NodeAddress | None:
    """The node that the options name, or None. InvalidRequest names the option that is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    url = given.get(URL_OPTION)
    if url is None:
        for name in (TOKEN_FILE_OPTION, CA_FILE_OPTION):
            if name in given:
                raise InvalidRequest(f"has no effect without {URL_OPTION}: give both", field=name)
        return None
    parts = http_address(url)
    if parts is None:
        raise InvalidRequest(f"{url[:80]!r} must look like http://host:port", field=URL_OPTION)
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(
            f"must not carry credentials: give {TOKEN_FILE_OPTION}", field=URL_OPTION
        )
    token_file, ca_file = given.get(TOKEN_FILE_OPTION), given.get(CA_FILE_OPTION)
    token = env.get(TOKEN_VARIABLE) if token_file is None else _read_token(Path(token_file))
    return NodeAddress(url.rstrip("/"), token, None if ca_file is None else Path(ca_file))


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {path}: {error}", field=TOKEN_FILE_OPTION) from None
    if not token or not token.isascii() or any(char.isspace() for char in token):
        raise InvalidRequest(f"{path} must hold exactly one token", field=TOKEN_FILE_OPTION)
    return token
