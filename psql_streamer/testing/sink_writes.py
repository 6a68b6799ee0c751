"""A sink that is written to as the pipeline does it, and what of it the parts of its contract share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain

from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Sink, Transaction
from psql_streamer.model import Batch
from psql_streamer.testing.parts import PartContract
from psql_streamer.testing.written import WrittenEvent


class WritingContract(PartContract[Sink]):
    """What SinkContract's parts need of the class that says how a sink is made."""

    @abstractmethod
    def make_sink(self) -> Sink:
        """A sink that has not been started."""

    def list_written(self) -> Sequence[WrittenEvent] | None:
        """The events that are there, those of a key in their order, without those that were put aside. None where
        nobody can say: then what arrives is not tested.
        """
        return None

    def count_written(self) -> int | None:
        """How many events are there; None where nobody can say. It need not be written beside `list_written`."""
        written = self.list_written()
        return None if written is None else len(written)

    def cause_outage(self) -> AbstractContextManager[None] | None:
        """A time in which a sink that has been started cannot write: its writes raise SinkUnavailable. None where
        nobody can bring that about.
        """
        return None

    @abstractmethod
    def _make_started(self) -> AbstractContextManager[Sink]:
        """See PartContract."""


def write(sink: Sink, batch: Batch) -> None:
    """Write a batch in the way that the sink takes batches."""
    bind_write(sink, batch)()


def bind_write(sink: Sink, batch: Batch) -> Callable[[], None]:
    """Writes a batch. Called again, it gives the sink the same object."""
    return _bind_transaction(sink, [batch]) if sink.is_transactional else partial(sink.write, batch)


def bind_writes(sink: Sink, batches: Sequence[Batch]) -> Iterator[Callable[[], None]]:
    """What writes batches that wait, offered as the pipeline does it: several at once to a sink that takes them."""
    if sink.is_transactional:
        yield _bind_transaction(sink, batches)
        return
    waiting = iter(batches)
    for first in waiting:
        yield sink.begin_write(chain([first], waiting))


def write_waiting(sink: Sink, batches: Sequence[Batch]) -> None:
    """Write batches that wait."""
    for write_some in bind_writes(sink, batches):
        write_some()


def succeeds(call: Callable[[], None]) -> bool:
    """Whether it returns, and does not raise SinkUnavailable."""
    try:
        call()
    except SinkUnavailable:
        return False
    return True


def _bind_transaction(sink: Sink, batches: Sequence[Batch]) -> Callable[[], None]:
    return partial(sink.write_transaction, Transaction(batches, {"db1": b"{}"}))
