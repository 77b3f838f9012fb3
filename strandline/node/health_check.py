"""`python -m strandline.node.health_check [FILE]`: checks that the node on this machine is alive.

The container's health check runs every few seconds, so it reads only the three settings that it
needs: loading all of them takes ten times the CPU. FILE is the settings file, by default
STRANDLINE_CONFIG. The exit code is 0 if the node answers and 1 if not; standard error has the
reason.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9480
DEADLINE_S = 2.0
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 asked, not bound


def http_settings(environment: Mapping[str, str], file: Path | None) -> dict[str, Any]:
    """The `[http]` section of the file, overridden by the environment as in the node.

    Raises OSError or tomllib.TOMLDecodeError if the file can't be read.
    """
    section = {} if file is None else dict(tomllib.loads(file.read_text()).get("http", {}))
    for name in ("host", "port", "tls_certificate_file"):
        given = environment.get(f"STRANDLINE_HTTP__{name.upper()}")
        if given is not None:
            section[name] = given
    return section


def ask(section: Mapping[str, Any]) -> None:
    """Request /healthz; raises OSError, ValueError or http.client.HTTPException unless the answer
    is 200.
    """
    host = str(section.get("host", DEFAULT_HOST))
    host, port = _LOOPBACK_OF.get(host, host), int(section.get("port", DEFAULT_PORT))
    certificate = section.get("tls_certificate_file")
    connection = (
        http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
        if certificate is None
        else http.client.HTTPSConnection(
            host, port, timeout=DEADLINE_S, context=_trusting(str(certificate))
        )
    )
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"GET /healthz at {host}:{port} answered {answer.status}")
    finally:
        connection.close()


def _trusting(certificate: str) -> ssl.SSLContext:
    """A context that trusts only the node's own certificate. Its host names are not checked, since
    they are those for other machines.
    """
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def main(arguments: list[str]) -> int:
    """Check the node; returns the exit code."""
    named = arguments[0] if arguments else os.environ.get("STRANDLINE_CONFIG")
    try:
        ask(http_settings(os.environ, None if named is None else Path(named)))
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.stderr.write(f"the node is not healthy: {error or type(error).__name__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
