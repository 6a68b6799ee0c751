"""What every part promises of its construction, its stop and its interruption, whenever they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import ClassVar, Generic, TypeVar

from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Finding, Handler, Sink, Source
from psql_streamer.testing.construction import require_nothing_acquired
from psql_streamer.testing.threads import call_in_a_thread, end_soon

Part = TypeVar("Part", Source, Handler, Sink)

NO_OUTAGE = "cause_outage is not overridden: nobody can bring an outage about"


class PartContract(ABC, Generic[Part]):
    """Its subclasses are the contracts of sources, handlers and sinks, which say how a part is made and started."""

    _start_error: ClassVar[type[StreamerError]]
    """What a start raises when what it needs is not there."""

    @abstractmethod
    def _make(self) -> Part:
        """A part that has not been started."""

    @abstractmethod
    def _make_unreachable(self) -> Part | None:
        """One whose start fails; None where there is no such part."""

    @abstractmethod
    def _start_once(self, part: Part) -> None:
        """One attempt to start it, as the pipeline makes it."""

    @abstractmethod
    def _make_started(self) -> AbstractContextManager[Part]:
        """One that has been started, and is stopped with the block."""

    def test_making_one_does_no_io(self) -> None:
        require_nothing_acquired(self._make)

    def test_a_stop_may_come_twice_and_before_a_start(self) -> None:
        part = self._make()
        part.stop()
        with self._make_started() as started:
            started.stop()
            started.stop()

    def test_an_interrupt_may_come_before_a_start_and_behind_a_stop(self) -> None:
        """As a stop of the service that comes while parts start."""
        part = self._make()
        end_soon(part.interrupt, "interrupt before a start")
        call_in_a_thread(part.stop)
        with self._make_started() as started:
            pass
        end_soon(started.interrupt, "interrupt behind a stop")

    def test_a_stop_may_come_behind_a_start_that_failed(self) -> None:
        """And so may another start."""
        part = self._make_unreachable()
        if part is None:
            return
        for _ in range(2):  # the pipeline tries again without a stop in between
            require_error(
                lambda: self._start_once(part),
                self._start_error,
                "a start does not fail though what it needs is not there",
            )
        call_in_a_thread(part.stop)
        call_in_a_thread(part.stop)


def require_error(
    call: Callable[[], object], error: type[StreamerError] | tuple[type[StreamerError], ...], otherwise: str
) -> None:
    """Call what has to raise this; AssertionError with the words `otherwise` when it raises nothing."""
    try:
        call()
    except error:
        return
    raise AssertionError(otherwise)


def require_findings(found: Iterable[Finding], method: str) -> list[Finding]:
    """What a check or a review gave; AssertionError where something of it is no Finding. method: its name."""
    findings = list(found)
    assert all(isinstance(one, Finding) for one in findings), f"{method} gives a Finding for each problem"
    return findings
