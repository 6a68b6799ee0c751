"""Threads that do the tasks of a schedule, each over a session of its own."""

from __future__ import annotations

import logging
import threading
import traceback
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from psql_streamer.errors import SourceError, SourceRefused
from psql_streamer.snapshot.delivered import Given
from sources.snapshot.options import SnapshotOptions
from sources.snapshot.schedule import Schedule
from sources.snapshot.work import Check, Look, Read, Task

log = logging.getLogger(__name__)

S = TypeVar("S")
G = TypeVar("G", bound=Given)

_IDLE_SECONDS = 10.0
"""The time for which a session is kept without work."""

_READER_STOP_SECONDS = 3.0


class ReaderThreads(ABC, Generic[S, G]):
    """From start to stop. retry: seconds before another attempt where the server could not be asked."""

    def __init__(self, name: str, options: SnapshotOptions, retry: float, schedule: Schedule[G]) -> None:
        self._name = name
        self._chosen = options
        self._retry = retry
        self._schedule = schedule
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def open_session(self) -> AbstractContextManager[S]:
        """A session for as long as there is work. Raises SourceErrors."""

    @abstractmethod
    def do(self, task: Task, session: S, stopping: threading.Event) -> None:
        """Do one task. SourceRefused ends its table; another SourceError its session: it is tried again in another."""

    @abstractmethod
    def interrupt(self) -> None:
        """Give up what is waited for."""

    def start(self) -> None:
        """Begin; behind `stop` where it was at work."""
        self._stopping = threading.Event()
        self._schedule.restart()
        self._threads = [
            threading.Thread(
                target=self._run, args=(self._stopping,), name=f"source.{self._name} snapshot {number}", daemon=True
            )
            for number in range(self._chosen.parallel)
        ]
        for thread in self._threads:
            thread.start()

    def prepare_stop(self) -> None:
        """Tell the threads to end. As often as `stop`."""
        self._stopping.set()
        self._schedule.stop()
        self.interrupt()

    def stop(self) -> None:
        """End. May be called twice, and before start."""
        self.prepare_stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(_READER_STOP_SECONDS)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            task = self._schedule.wait_for_task(_IDLE_SECONDS)
            if task is not None:
                self._work(task, stopping)

    def _work(self, task: Task, stopping: threading.Event) -> None:
        """Do this task and those that follow in one session; one that is lost is made again after a pause."""
        following: Task | None = task
        try:
            with self.open_session() as session:
                while following is not None:
                    task = following
                    try:
                        self.do(task, session, stopping)
                    except SourceRefused as error:
                        self.refuse(task, error)
                    following = self._schedule.wait_for_task(_IDLE_SECONDS)
        except SourceError as error:
            if not stopping.is_set():
                log.warning("source.%s: a snapshot waits: %s", self._name, error)
            self._schedule.give_up(task, reason=str(error))
            stopping.wait(self._retry)
        except Exception as error:  # no thread ends in silence; the text may have values of rows in it
            log.error("source.%s: a snapshot met a program error: %s", self._name, _describe_places(error))
            self._schedule.give_up(task, reason=f"a program error, {type(error).__name__}: see the log, and report it")
            stopping.wait(self._retry)

    def is_out_of_order(self, task: Read | Look, order: str, note: str = "") -> bool:
        """Whether the key of the task is none of the table as it is, which has this order; then it is read from its
        beginning. note: what consumers lack by what has become of the table."""
        if task.order in ("", order):
            return False
        log.warning(
            "source.%s: snapshot %s reads %s from its beginning: %s",
            *(self._name, task.run.id, task.table.table),
            note or "its key, its row filter or a partition is another one",
        )
        self._schedule.begin_anew(task, note)
        return True

    def refuse(self, task: Task, error: SourceRefused) -> None:
        """The table, or the whole snapshot, is not read."""
        if isinstance(task, Check):
            log.error("source.%s: the keys of %s are not looked up: %s", self._name, task.table.table, error)
        else:
            what = task.table.table if isinstance(task, Read | Look) else "its tables"
            log.error("source.%s: the snapshot does not read %s: %s", self._name, what, error)
        self._schedule.give_up(task, refused=str(error))


def _describe_places(error: Exception) -> str:
    """Where in the program an error came from, without its text."""
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(
        [type(error).__name__, *(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[::-1])]
    )
