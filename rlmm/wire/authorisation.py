"""Rights on the quorum's listener: peers may do everything, other clients read at most.

A Produce can delete everything, so a peer authenticates itself: by a certificate of the configured
authority with a known name or fingerprint, or by the shared secret.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlmm.wire.frames import Api

UNAUTHENTICATED = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
READS = frozenset(
    {
        Api.METADATA,
        Api.DESCRIBE_CLUSTER,
        Api.LIST_OFFSETS,
        Api.DESCRIBE_QUORUM,
        Api.FIND_COORDINATOR,
        Api.FETCH,  # as a consumer; as a replica it is a peer's
    }
)
"""The APIs for every client while `anonymous_reads` is on."""
_NAMES_OF_NODES = ("DNS", "IP Address", "URI")


@dataclass(frozen=True, slots=True)
class Authorisation:
    """The configured peers. `certificate_names` are common names or alternative names (DNS, IP
    address, URI) of their certificates, `certificate_fingerprints` the SHA-256 of the certificates
    in DER form, in hexadecimal. The TLS context decides which authorities are trusted.
    """

    secret: str | None = field(default=None, repr=False)
    certificate_names: frozenset[str] = frozenset()
    certificate_fingerprints: frozenset[str] = frozenset()
    anonymous_reads: bool = True

    def is_peer(self, certificate: Mapping[str, Any] | None, der: bytes | None) -> bool:
        """True if a client certificate, already verified by TLS, is a peer's."""
        if not certificate or der is None:
            return False
        if hashlib.sha256(der).hexdigest() in self.certificate_fingerprints:
            return True
        return not self.certificate_names.isdisjoint(_names(certificate))


def _names(certificate: Mapping[str, Any]) -> set[str]:
    names = {
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    }
    others = certificate.get("subjectAltName", ())
    return names | {value for kind, value in others if kind in _NAMES_OF_NODES}


def is_loopback(host: str) -> bool:
    """True if traffic to this address does not leave the machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
