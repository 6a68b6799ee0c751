"""Several tables of a micro-batch in Spark at once: a thread and a session each, so that their views do not meet."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TABLES_AT_ONCE = max(2, min(8, os.cpu_count() or 2))

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class SessionPool:
    """Sessions over one engine. With another engine, another object. For one caller at a time.

    most: tables at once. another: makes a session like the one that is given.
    """

    def __init__(
        self, spark: SparkSession, most: int = _MOST_TABLES_AT_ONCE, another: Callable[[], SparkSession] | None = None
    ) -> None:
        self._spark = spark
        self._another = another or spark.newSession
        self._most = most
        self._own = threading.local()
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = 0

    @property
    def spark(self) -> SparkSession:
        """The caller's own session."""
        return self._spark

    def run_each(self, work: Callable[[SparkSession, _Given], _Made], given: Iterable[_Given]) -> list[_Made]:
        """The results of the work on each, in their order; the first failure is raised when all have ended."""
        items = list(given)
        if min(len(items), self._most) < 2:
            return [work(self._spark, item) for item in items]
        self._start_threads(min(len(items), self._most))
        futures = [self._submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads; one that is at work ends behind it, and nobody waits for that."""
        for _ in range(self._threads):
            self._tasks.put(None)

    def _submit(self, work: Callable[[SparkSession, _Given], _Made], item: _Given) -> Future[_Made]:
        future: Future[_Made] = Future()

        def task() -> None:
            try:
                future.set_result(work(self._ensure_session(), item))
            except BaseException as error:  # it is raised where the result is asked for
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def _start_threads(self, wanted: int) -> None:
        # Daemons, which ThreadPoolExecutor's are not: a job that hangs must not keep the process from ending.
        while self._threads < wanted:
            self._threads += 1
            threading.Thread(target=self._run, name=f"spark table {self._threads}", daemon=True).start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _ensure_session(self) -> SparkSession:
        """This thread's session, which is made when first asked for."""
        if not hasattr(self._own, "session"):
            self._own.session = self._another()
        session: SparkSession = self._own.session
        return session
