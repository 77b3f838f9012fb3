"""The TLS contexts of the quorum's listener and of connections to the other nodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest
from strandline.settings.settings import QuorumSettings


@dataclass(slots=True)
class QuorumTls:
    """The certificate files of the quorum. `use` takes a server context for new connections of the
    listener and a client context for new connections of this node; None without a listener.
    """

    settings: QuorumSettings
    use: Callable[[ssl.SSLContext, ssl.SSLContext], None] | None = None

    def reload(self) -> bool:
        """Read the files again, for new connections; False without files. Raises InvalidRequest if
        a file can't be used; the old contexts stay in use then.
        """
        server, client = server_tls(self.settings), client_tls(self.settings)
        if self.use is None or server is None or client is None:
            return False
        self.use(server, client)
        return True


def server_tls(settings: QuorumSettings) -> ssl.SSLContext | None:
    """The listener's context; None for plain text. Raises InvalidRequest if a file can't be
    used.
    """
    context = _tls(settings, ssl.Purpose.CLIENT_AUTH)
    if context is not None and settings.tls_ca_file is not None:
        # Tools without a certificate may read; peers' requests need a certificate or the secret.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_tls(settings: QuorumSettings) -> ssl.SSLContext | None:
    """The context of connections to other nodes; None and errors as in `server_tls`."""
    return _tls(settings, ssl.Purpose.SERVER_AUTH)


def _tls(settings: QuorumSettings, others: ssl.Purpose) -> ssl.SSLContext | None:
    authorities, certificate = settings.tls_ca_file, settings.tls_certificate_file
    if certificate is None or settings.tls_key_file is None:
        return None
    try:
        # With a `cafile` the machine's own list of authorities is not loaded.
        context = ssl.create_default_context(others, cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"{authorities} can't be used ({error}): it has to be a PEM file of CA certificates",
            field="quorum.tls_ca_file",
        ) from None
    try:
        # With an empty password an encrypted key is an error; without one OpenSSL would prompt.
        context.load_cert_chain(certificate, settings.tls_key_file, "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"{certificate} and {settings.tls_key_file} can't be used ({error}): they have to be "
            "PEM files that belong together, and the key must not be encrypted",
            field="quorum.tls_certificate_file",
        ) from None
    return context
