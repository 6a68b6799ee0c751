"""The thread that reads a lookup, beside the batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from psql_streamer.interfaces import Source
from psql_streamer.spark.lookups.lookup import Lookup
from psql_streamer.spark.lookups.reading import read, stamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST_WAIT_SECONDS = 60.0


class Refresher:
    """Reads a lookup when it is due. Each has a thread of its own: a database that does not answer makes no other one
    old. Begins with its first engine.
    """

    def __init__(self, lookup: Lookup, sources: Mapping[str, Source]) -> None:
        self._lookup = lookup
        self._sources = sources
        self._spark: SparkSession | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._has_tried = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None

    def begin(self, spark: SparkSession) -> None:
        """Read it in a thread when it is due. spark: a session that nobody else uses."""
        self._spark = spark
        if self._thread is None:
            self._ending = False
            self._has_tried.clear()
            self._thread = threading.Thread(target=self._run, name=f"spark lookup {self._lookup.name}", daemon=True)
            self._thread.start()
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Until it was read, or found not to be there, for the first time."""
        self._has_tried.wait(seconds)

    def hurry(self) -> None:
        """It may be due now."""
        self._wake.set()

    def pause(self) -> None:
        """The engine is gone: nothing is read until the next `begin`."""
        self._spark = None

    def end(self) -> None:
        """Read nothing more. What hangs is left behind."""
        self._ending = True
        self._spark = None
        self._thread = None
        self._wake.set()

    def _run(self) -> None:
        mine = threading.current_thread()
        while not self._ending and self._thread is mine:
            self._read_if_due()
            self._has_tried.set()
            self._wake.wait(self._find_pause())
            self._wake.clear()

    def _find_pause(self) -> float:
        due = self._lookup.due_at
        wait = float("inf") if due is None or self._spark is None else due - time.monotonic()
        return max(0.0, min(_LONGEST_WAIT_SECONDS, wait))

    def _read_if_due(self) -> None:
        with self._lock:
            spark, due = self._spark, self._lookup.due_at
            if spark is None or due is None or due > time.monotonic():
                return
            self._lookup.load(partial(read, spark=spark, sources=self._sources), partial(stamp, spark=spark))
