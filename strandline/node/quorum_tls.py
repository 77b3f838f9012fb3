"""The TLS contexts of the quorum: of its listener and of connections to the other nodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest
from strandline.settings.settings import QuorumSettings


@dataclass(slots=True)
class QuorumTls:
    """The certificate files of a node's quorum. `use` takes contexts for the listener's and this
    node's new connections; None: it has neither.
    """

    settings: QuorumSettings
    use: Callable[[ssl.SSLContext, ssl.SSLContext], None] | None = None

    def reload(self) -> bool:
        """Read the files again, for new connections; False without files. InvalidRequest: a file is
        wrong, and nothing changes.
        """
        server, client = server_tls(self.settings), client_tls(self.settings)
        if self.use is None or server is None or client is None:
            return False
        self.use(server, client)
        return True


def server_tls(settings: QuorumSettings) -> ssl.SSLContext | None:
    """The listener's context; None: plain text. InvalidRequest: a file can't be used."""
    context = _tls(settings, ssl.Purpose.CLIENT_AUTH)
    if context is not None and settings.tls_ca_file is not None:
        # Tools without a certificate may read; requests of peers need one, or the secret.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_tls(settings: QuorumSettings) -> ssl.SSLContext | None:
    """The context of connections to other nodes, as `server_tls`."""
    return _tls(settings, ssl.Purpose.SERVER_AUTH)


def _tls(settings: QuorumSettings, others: ssl.Purpose) -> ssl.SSLContext | None:
    authorities, certificate = settings.tls_ca_file, settings.tls_certificate_file
    if certificate is None or settings.tls_key_file is None:
        return None
    try:
        # Where a file of authorities is given, the machine's own list is not loaded.
        context = ssl.create_default_context(others, cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"{authorities} can't be used: {error}; it has to be a PEM file of authorities",
            field="quorum.tls_ca_file",
        ) from None
    try:
        # The empty password makes an encrypted key an error; without it OpenSSL asks.
        context.load_cert_chain(certificate, settings.tls_key_file, "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"{certificate} and {settings.tls_key_file} can't be used: {error}; they are PEM "
            "files, belong together, and the key must not be encrypted",
            field="quorum.tls_certificate_file",
        ) from None
    return context
