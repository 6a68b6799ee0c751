"""The few functions of libpq that a replication stream needs and that psycopg2 does not hand on unchanged.

psycopg2's own replication cursor tells the server that everything up to a keepalive's WAL end is flushed, as soon as
the last message was; and it tells so by itself when a keepalive asks (psycopg2, pq_read_replication_message). What may
be confirmed is for the position store to say, so the stream is read and answered here, on the connection that psycopg2
made.

Functions and their results: PostgreSQL documentation, "libpq: Functions Associated with the COPY Command",
"Asynchronous Command Processing" and "Canceling Queries in Progress".
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import psycopg2
import psycopg2.extensions

_FIELDS = "VCMHW"
"""PG_DIAG_SEVERITY_NONLOCALIZED, PG_DIAG_SQLSTATE, PG_DIAG_MESSAGE_PRIMARY, PG_DIAG_MESSAGE_HINT, PG_DIAG_CONTEXT."""

_NoticeReceiver = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
"""PQnoticeReceiver: an argument of the caller's, and the notice as a result."""


class CopyEnded(Exception):
    """The server ended the stream. fields: its ErrorResponse, M alone when libpq has only a text."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(fields.get("M", ""))
        self.fields = fields


def _load() -> Any:
    # A library's handle finds the symbols of what it depends on, too: this is the libpq that psycopg2 uses.
    library = ctypes.CDLL(psycopg2._psycopg.__file__)
    connection, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("PQsetnonblocking", ctypes.c_int, [connection, ctypes.c_int]),
        ("PQconsumeInput", ctypes.c_int, [connection]),
        ("PQgetCopyData", ctypes.c_int, [connection, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]),
        ("PQputCopyData", ctypes.c_int, [connection, text, ctypes.c_int]),
        ("PQflush", ctypes.c_int, [connection]),
        ("PQfreemem", None, [ctypes.c_void_p]),
        ("PQgetResult", ctypes.c_void_p, [connection]),
        ("PQresultErrorField", text, [ctypes.c_void_p, ctypes.c_int]),
        ("PQclear", None, [ctypes.c_void_p]),
        ("PQerrorMessage", text, [connection]),
        ("PQgetCancel", ctypes.c_void_p, [connection]),
        ("PQcancel", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
        ("PQfreeCancel", None, [ctypes.c_void_p]),
        ("PQsetNoticeReceiver", ctypes.c_void_p, [connection, _NoticeReceiver, ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class CancelRequest:
    """What ends the command that a connection waits for, from any thread.

    psycopg2's own `cancel` holds the interpreter's lock until the server has answered (psycopg2, psyco_conn_cancel),
    and a server that keeps silent would stop every thread.
    """

    def __init__(self, connection: psycopg2.extensions.connection) -> None:
        self._libpq = _load()
        self._cancel = ctypes.c_void_p(self._libpq.PQgetCancel(ctypes.c_void_p(connection.pgconn_ptr)))

    def send(self) -> bool:
        """Whether the server has taken it. Waits for the server, without a limit. To be called once."""
        error = ctypes.create_string_buffer(256)
        try:
            return bool(self._libpq.PQcancel(self._cancel, error, len(error)))
        finally:
            self._libpq.PQfreeCancel(self._cancel)


class CopyBoth:
    """A psycopg2 connection on which START_REPLICATION was answered. Nothing here waits."""

    def __init__(self, connection: psycopg2.extensions.connection) -> None:
        self._libpq = _load()
        self._connection = ctypes.c_void_p(connection.pgconn_ptr)
        self._buffer = ctypes.c_void_p()
        self._libpq.PQsetnonblocking(self._connection, 1)
        self._notices: list[Mapping[str, str]] = []
        # libpq holds a pointer to it, which keeps no Python object alive.
        self._on_notice = _NoticeReceiver(lambda _, result: self._notices.append(self._read_error_fields(result)))
        self._libpq.PQsetNoticeReceiver(self._connection, self._on_notice, None)

    def get(self) -> bytes | None:
        """The content of the next CopyData message; None when it is not there yet. CopyEnded."""
        libpq = self._libpq
        # -1: the stream ended, -2: an error, 0: not there yet.
        size = libpq.PQgetCopyData(self._connection, ctypes.byref(self._buffer), 1)
        if size < 0:
            raise CopyEnded(self._read_result_fields() if size == -1 else {"M": self._read_error_message()})
        if not size:
            return None
        try:
            return ctypes.string_at(self._buffer, size)
        finally:
            libpq.PQfreemem(self._buffer)

    def receive(self) -> None:
        """Take in what the connection has, a few kB at least. CopyEnded when there is no connection any more."""
        if not self._libpq.PQconsumeInput(self._connection):
            raise CopyEnded({"M": self._read_error_message()})

    def take_notices(self) -> list[Mapping[str, str]]:
        """The fields of every NoticeResponse since the last call: libpq keeps these out of the stream."""
        taken, self._notices = self._notices, []
        return taken

    def put(self, content: bytes) -> None:
        """Send a CopyData message; what the socket does not take now goes with the next. CopyEnded."""
        sent = self._libpq.PQputCopyData(self._connection, content, len(content))
        if sent < 0 or self._libpq.PQflush(self._connection) < 0:
            raise CopyEnded({"M": self._read_error_message()})

    def _read_error_message(self) -> str:
        text: bytes = self._libpq.PQerrorMessage(self._connection) or b""
        return " ".join(text.decode("utf-8", "replace").split()) or "the connection to the server was lost"

    def _read_result_fields(self) -> Mapping[str, str]:
        result = ctypes.c_void_p(self._libpq.PQgetResult(self._connection))
        try:
            fields = self._read_error_fields(result) if result else {}
        finally:
            self._libpq.PQclear(result)
        return fields or {"M": "the server ended the replication stream"}

    def _read_error_fields(self, result: Any) -> Mapping[str, str]:
        found = {name: self._libpq.PQresultErrorField(result, ord(name)) for name in _FIELDS}
        return {name: text.decode("utf-8", "replace") for name, text in found.items() if text}
