"""Parses voters and peers in Kafka's form: `id@host:port[:directory id]`."""

from __future__ import annotations

import re

from kafka_formats.errors import InvalidRequest
from kafka_formats.host_names import is_host
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.config import LISTENER_NAME

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]]+):(\d{1,5})")
_NODE = re.compile(r"(\d{1,10})@(.+)")


def parse_address(text: str, *, field: str) -> tuple[str, int]:
    """Parse `host:port`, with an IPv6 address in brackets; raises InvalidRequest for other
    texts.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 <= int(match[2]) < 65_536:
        raise InvalidRequest(f"{text!r} is not host:port; correct it", field=field)
    host = match[1].strip("[]")
    if not is_host(host):
        raise InvalidRequest(f"{host[:80]!r} is not a valid host name; correct it", field=field)
    return host, int(match[2])


def parse_peer(text: str, *, field: str) -> tuple[int, str, int]:
    """Parse `id@host:port` into (id, host, port); raises InvalidRequest for other texts."""
    match = _NODE.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text!r} is not id@host:port; correct it", field=field)
    return int(match[1]), *parse_address(match[2], field=field)


def parse_voters(text: str, *, field: str) -> tuple[Voter, ...]:
    """Parse comma-separated `id@host:port:directory-id`, the form of `kafka-storage
    --initial-controllers`. The result is sorted by node id; raises InvalidRequest for other texts
    or if a node id is given twice.
    """
    voters = []
    for each in text.split(","):
        address, _, directory = each.strip().rpartition(":")
        if not address:
            raise InvalidRequest(
                f"{each!r} is not id@host:port:directory-id; correct it", field=field
            )
        try:
            node_id, host, port = parse_peer(address, field=field)
            directory_id = Uuid.parse(directory)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{each!r} is not id@host:port:directory-id: {error}", field=field
            ) from error
        endpoint = Endpoint(LISTENER_NAME, host, port)
        voters.append(Voter(node_id, directory_id, (endpoint,)))
    if len({voter.node_id for voter in voters}) != len(voters):
        raise InvalidRequest("a node id is given twice: name each voter once", field=field)
    return tuple(sorted(voters, key=lambda voter: voter.node_id))
