"""The open files of a node: the number that its settings need, and lower limits of connections if
the process may open fewer.
"""

from __future__ import annotations

import contextlib
import logging
import resource

from strandline.settings.read import ReadSettings
from strandline.settings.settings import HttpSettings, QuorumSettings, Settings

FILES_BESIDES_CONNECTIONS = 512
"""Number of files reserved for the metadata log and RocksDB, the sockets to workers and peers, and
HTTP connections that are being refused."""

_READ_FILES = 3
"""Number of files for a consumer's connection: itself, its twin at a broker, and the duplicate of
its socket in a worker.
"""

CONNECTIONS_MIN = 16

_UNLIMITED = 1 << 30
_log = logging.getLogger("strandline")


def files_needed(settings: Settings) -> int:
    """The most files that a node with these settings has open at once."""
    return _files_besides_clients(settings) + _http_files(settings) + _quorum_files(settings)


def within_open_files(settings: Settings, files_max: int) -> Settings:
    """Lower `connections_max` of HTTP and the quorum so that the node needs at most `files_max`
    open files.

    Clients may use up all connections, and the node ends if the metadata log can't open its next
    file. Each listener gets half of the remaining files, and those that the other listener does not
    need.
    """
    if (needed := files_needed(settings)) <= files_max:
        return settings
    left = files_max - _files_besides_clients(settings)
    http, quorum = settings.http, settings.quorum
    quorum_files = max(left // 2, left - _http_files(settings))
    if quorum.listen:
        quorum = quorum.model_copy(
            update={"connections_max": _bound(quorum, min(quorum_files, _quorum_files(settings)))}
        )
    lowered = settings.model_copy(update={"quorum": quorum})
    http = http.model_copy(update={"connections_max": _bound(http, left - _quorum_files(lowered))})
    _log.warning(
        "the process may open %d files, but up to %d are needed: the node accepts at most %d HTTP "
        "connections instead of %d, and %d of the quorum instead of %d; raise the limit "
        "(LimitNOFILE, ulimit -Hn)",
        files_max,
        needed,
        http.connections_max,
        settings.http.connections_max,
        quorum.connections_max,
        settings.quorum.connections_max,
    )
    return lowered.model_copy(update={"http": http})


def files_limit() -> int:
    """The most files that this process may open, after its limit was raised to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _files_besides_clients(settings: Settings) -> int:
    stores = sum(store.connections_max for store in settings.stores.values())
    read = 0
    if settings.read.listen:
        read = settings.read.connections_max * (_READ_FILES + _files_each(settings.read) - 1)
    return FILES_BESIDES_CONNECTIONS + stores + read


def _http_files(settings: Settings) -> int:
    return settings.http.connections_max * _files_each(settings.http)


def _quorum_files(settings: Settings) -> int:
    if not settings.quorum.listen:
        return 0
    return settings.quorum.connections_max * _files_each(settings.quorum)


def _files_each(listener: HttpSettings | QuorumSettings | ReadSettings) -> int:
    """The files per connection: with TLS there may be as many handshakes as connections."""
    return 1 if listener.tls_certificate_file is None else 2


def _bound(listener: HttpSettings | QuorumSettings, files: int) -> int:
    most = max(CONNECTIONS_MIN, files // _files_each(listener))
    return min(listener.connections_max, most)
