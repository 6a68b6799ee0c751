"""TCP connections to a server on the same machine: messages gather in its send buffer (decision 109)."""

from __future__ import annotations

import socket
from pathlib import Path

from psql_streamer.batching import SOCKET_GATHER_BYTES, SOCKET_WINDOW_BYTES

_SEND_BUFFERS = Path("/proc/sys/net/ipv4/tcp_wmem")
_ROOM = 2
"""The kernel counts its own structures in."""

_LARGE_SEGMENT_BYTES = 16 << 10
"""A send buffer begins with room for 20 segments, which the loopback interface has of up to 64 kB (Linux,
tcp_sndbuf_expand). With an MTU of 1,500 bytes the server would wait before enough has gathered."""


def let_messages_gather(connected: socket.socket) -> int:
    """Give a connection to the same machine a small window, so that what is not read waits in the server's send buffer.

    The bytes that may wait there without the server having to; 0, and nothing is changed, for Unix sockets, for servers
    on other machines, where send buffers are too small or unknown, and where windows may not be as large.
    """
    if not _is_same_machine(connected) or not _has_room_in_send_buffers(connected) or not _gives_windows():
        return 0
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_WINDOW_BYTES)
    return SOCKET_GATHER_BYTES


def _is_same_machine(connected: socket.socket) -> bool:
    """Both ends have one address, whichever of the machine's addresses it is."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return bool(connected.getsockname()[0] == connected.getpeername()[0])


def _has_room_in_send_buffers(connected: socket.socket) -> bool:
    segment = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return segment >= _LARGE_SEGMENT_BYTES and _read_largest_send_buffer() >= _ROOM * SOCKET_GATHER_BYTES


def _gives_windows() -> bool:
    """Whether a socket gets the window that it asks for: with a much smaller one (net.core.rmem_max) the server stalls.

    A socket of its own is asked, because what was set cannot be taken back.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_WINDOW_BYTES)
            return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= SOCKET_WINDOW_BYTES
    except OSError:
        return False


def _read_largest_send_buffer() -> int:
    """Bytes to which the kernel lets a send buffer grow (tcp(7), tcp_wmem); 0 where it does not say."""
    try:
        return int(_SEND_BUFFERS.read_text().split()[2])
    except (OSError, ValueError, IndexError):
        return 0
