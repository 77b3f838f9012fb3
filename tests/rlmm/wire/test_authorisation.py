"""Whose certificate is a peer's, and which addresses stay on the machine."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from rlmm.wire.authorisation import Authorisation, is_loopback

CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "Strandline"),), (("commonName", "node-1"),)),
    "subjectAltName": (("DNS", "node-1.example.org"), ("IP Address", "10.0.0.1")),
}
DER = b"the certificate"


@pytest.mark.parametrize("name", ["node-1", "node-1.example.org", "10.0.0.1"])
def test_a_known_name_is_a_peers(name: str) -> None:
    assert Authorisation(certificate_names=frozenset({"x", name})).is_peer(CERTIFICATE, DER)


@pytest.mark.parametrize("name", ["Strandline", "node-2", "node-1.example", ""])
def test_another_name_is_not(name: str) -> None:
    assert not Authorisation(certificate_names=frozenset({name})).is_peer(CERTIFICATE, DER)


def test_a_person_with_a_nodes_name_is_no_peer() -> None:
    """Authorities often let people choose the e-mail address in their certificates."""
    person = {"subject": (), "subjectAltName": (("email", "node-1"), ("URI", "spiffe://node-2"))}
    assert not Authorisation(certificate_names=frozenset({"node-1"})).is_peer(person, DER)
    assert Authorisation(certificate_names=frozenset({"spiffe://node-2"})).is_peer(person, DER)


def test_a_known_fingerprint_is_a_peers() -> None:
    known = Authorisation(certificate_fingerprints=frozenset({hashlib.sha256(DER).hexdigest()}))
    assert known.is_peer(CERTIFICATE, DER)
    assert not known.is_peer(CERTIFICATE, DER + b".")


@pytest.mark.parametrize(("certificate", "der"), [(None, None), ({}, b"x"), (CERTIFICATE, None)])
def test_without_a_verified_certificate_nobody_is_a_peer(certificate: Any, der: Any) -> None:
    names = frozenset({"node-1", ""})
    assert not Authorisation(certificate_names=names).is_peer(certificate, der)


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback_is_known_by_its_address(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def test_the_secret_is_not_printed() -> None:
    assert "hidden" not in repr(Authorisation(secret="hidden"))
