"""The TLS context of connections to the broker, made of its settings."""

from __future__ import annotations

from pathlib import Path

from tests.real.certificates import encrypted_key, make_certificate
from tests.real.nobody_at_the_terminal import lines_of

TRIED = """
from pathlib import Path
from kafka_formats.errors import Refused
from rlm.leadership.broker_view import BrokerConnectionSettings
try:
    BrokerConnectionSettings(
        "127.0.0.1", 9093, 1, "cluster", "SSL",
        ssl_certificate_file=Path({certificate!r}), ssl_key_file=Path({key!r}),
    ).tls()
except Refused as error:
    print(error)
"""


def test_an_encrypted_key_is_an_error_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    own = make_certificate(tmp_path)
    key = encrypted_key(own)
    (told,) = lines_of(TRIED.format(certificate=str(own.certificate), key=str(key)))
    assert told.startswith(f"cannot use the certificates or key in {own.certificate}, {key}")
    assert "must not be encrypted" in told
