"""The address of the HTTP API, or why it cannot be had."""

from __future__ import annotations

import errno
import os
import socket

from psql_streamer.errors import StreamerError

_BIND_REMEDIES = {
    errno.EADDRINUSE: "stop the process that listens there, or set another address with the key http",
    errno.EACCES: "set a port of 1024 or above with the key http, or grant CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "set an address of this machine, or 0.0.0.0 for all of them, with the key http",
}


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. StreamerError when the address cannot be had."""
    where = f"http {show_address(host, port)}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` has two addresses: take the one that clients without IPv6 find, too.
        family, _, _, _, sockaddr = min(found, key=lambda info: info[0] != socket.AF_INET)
        return socket.create_server(sockaddr[:2], family=family)
    except socket.gaierror as error:
        raise StreamerError(f"{where}: no such host", "set an address of this machine with the key http") from error
    except OSError as error:
        remedy = _BIND_REMEDIES.get(error.errno or 0, "set another address with the key http")
        raise StreamerError(f"{where}: {os.strerror(error.errno or errno.EIO).lower()}", remedy) from error


def show_address(host: str, port: int) -> str:
    """`127.0.0.1:8080` or `[::1]:8080`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
