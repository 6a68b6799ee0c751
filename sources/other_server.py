"""An address that leads to another server than that of the stream: what sources with a log have in common."""

from __future__ import annotations

from psql_streamer.errors import SourceUnavailable

WATCH_SESSION_SECONDS = 60.0
"""After which a watch asks over a new connection: an address that leads to another server now, and leaves the
connections that there are alone, shows by that."""

LOOKS_IN_VAIN = 2
"""After so many looks at a server without the stream that is told: one alone may have come just between the end of the
stream and its being read."""

STREAM_IS_NOT_THERE = (
    "the server to which the dsn leads now does not have this stream: it has ended there, and what was received is not "
    "read yet, or the dsn leads to another server"
)
"""What a watch tells then."""


class OtherServer(SourceUnavailable):
    """A session has come to a server that does not have the stream."""

    def __init__(self) -> None:
        super().__init__(
            "the dsn leads to another server than the one that the stream comes from, or the stream has just ended",
            "if it stays, look at what stands behind the address: a proxy, a pooler, a name with several addresses",
        )
