"""Everything that psql-streamer raises, and what becomes of it.

    StreamerError
      ConfigError            the configuration file cannot be used           -> stop, exit 2
      SourceError
        SourceUnavailable    the server cannot be reached or went away       -> retry
          QuietStreamEnded   it did while it had nothing more to send        -> retry
        SourceRefused        wrong password, no privilege, no publication    -> stop
        PositionRefused      the stored position does not fit the server     -> stop
          PositionAhead      the server has not come as far as that          -> stop, also at later starts
        ProtocolError        bytes that are not the replication protocol     -> stop
      HandlerError
        HandlerUnavailable   the engine failed in a way that may pass        -> retry
        HandlerRefused       a rule that can never work                      -> stop
      SinkError
        SinkUnavailable      brokers away, delivery not confirmed in time    -> retry
        SinkRefused          not authorised, a topic that cannot be made     -> stop
      StoreError             the position cannot be read or written          -> stop
        StoreInUse           another process has the file open               -> stop
      SnapshotError          something that is asked of a snapshot is refused; only whoever asked is told
        NoSuchSnapshot       no snapshot or source of this name
        SnapshotUnclear      several could be meant
        SnapshotConflict     not now: it has ended, or another one has the table

An error says what happened, where, and (remedy) what to do about it.
"""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """What the pipeline does when a part raises."""

    RETRY = "retry"
    STOP = "stop"


class StreamerError(Exception):
    """The root. `remedy` is what the reader of the message should do; it is part of the text.

    The text never holds row values, passwords or DSNs.
    """

    what: str = ""
    remedy: str = ""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class ConfigError(StreamerError):
    """The configuration cannot be used. `problems` has a line for each thing wrong, all found at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SourceError(StreamerError):
    """A source cannot go on."""


class SourceUnavailable(SourceError):
    """The server cannot be reached, or the connection went away."""


class QuietStreamEnded(SourceUnavailable):
    """The connection went away after the server had sent all that it had: no change is why."""


class SourceRefused(SourceError):
    """The server answered, and will answer the same until somebody changes something."""


class PositionRefused(SourceError):
    """The position asked for cannot be served without losing changes."""


class PositionAhead(PositionRefused):
    """The server ends in front of the position: it was restored. Changes that it gets from now on will pass the
    position, and those in front of it would be left out without a word.
    """


class ProtocolError(SourceError):
    """Bytes that are not the replication protocol as this version knows it."""


class HandlerError(StreamerError):
    """A handler could not transform a batch."""


class HandlerUnavailable(HandlerError):
    """The engine behind a handler failed in a way that may pass."""


class HandlerRefused(HandlerError):
    """A handler's rule can never work as it is written."""


class SinkError(StreamerError):
    """A sink could not take a batch."""


class SinkUnavailable(SinkError):
    """The sink is out of reach, or did not confirm in time. The batch does not count as durable."""


class SinkRefused(SinkError):
    """The sink will refuse everything until somebody changes something."""


class StoreError(StreamerError):
    """The position store cannot be read or written."""


class StoreInUse(StoreError):
    """Another process has the file open."""


class SnapshotError(StreamerError):
    """Something that is asked of a snapshot is refused. Nothing is stopped by it."""


class NoSuchSnapshot(SnapshotError):
    """There is no snapshot, or no source, of this name."""


class SnapshotUnclear(SnapshotError):
    """Several snapshots or sources could be meant."""


class SnapshotConflict(SnapshotError):
    """It cannot be done now: the snapshot has ended, or another one has the table."""


OUTCOMES: dict[type[BaseException], Outcome] = {
    SourceUnavailable: Outcome.RETRY,
    HandlerUnavailable: Outcome.RETRY,
    SinkUnavailable: Outcome.RETRY,
    StreamerError: Outcome.STOP,
}


def choose_outcome(error: BaseException) -> Outcome:
    """What becomes of an error: its nearest class in OUTCOMES decides; anything unknown stops."""
    return next((OUTCOMES[kind] for kind in type(error).__mro__ if kind in OUTCOMES), Outcome.STOP)
