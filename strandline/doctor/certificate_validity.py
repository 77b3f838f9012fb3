"""Validity of a certificate and its key, found by a TLS handshake in memory."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

HANDSHAKE_TURNS_MAX = 10


def valid_until_s(certificate: Path, key: Path, *, of_client: bool) -> float:
    """End of the certificate's validity, in seconds since the epoch.

    Raises OSError (`ssl.SSLError` is one) if the files can't be read, if key and certificate don't
    match, or if the certificate is not valid now or not valid for its use: that of a client if
    `of_client`, else that of a server.
    """
    shows, looks = (
        (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
        if of_client
        else (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    showing, looking = ssl.SSLContext(shows), ssl.SSLContext(looks)
    showing.check_hostname = looking.check_hostname = False
    showing.verify_mode, looking.verify_mode = ssl.CERT_NONE, ssl.CERT_REQUIRED
    showing.load_cert_chain(certificate, key, "")
    if of_client:
        looking.load_cert_chain(certificate, key, "")  # a TLS server needs a certificate
    looking.load_verify_locations(certificate)
    looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the CA's certificate is not needed
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        showing.wrap_bio(back, there, server_side=not of_client),
        looking.wrap_bio(there, back, server_side=of_client),
    )
    for _ in range(HANDSHAKE_TURNS_MAX):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        shown = ends[1].getpeercert() if ends[1].version() else None
        if shown:
            return ssl.cert_time_to_seconds(str(shown["notAfter"]))
    raise ssl.SSLError(f"the TLS handshake with {certificate} did not finish")
