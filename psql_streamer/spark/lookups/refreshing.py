"""The thread that reads lookups, beside the batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from psql_streamer.interfaces import Source
from psql_streamer.spark.lookups.lookup import Lookup
from psql_streamer.spark.lookups.reading import read, stamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("psql_streamer.spark")

_LONGEST_WAIT_SECONDS = 60.0


class Refresher:
    """Reads lookups when they are due, one after the other. Begins with its first engine."""

    def __init__(self, lookups: Sequence[Lookup], sources: Mapping[str, Source]) -> None:
        self._lookups = lookups
        self._sources = sources
        self._spark: SparkSession | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None

    def begin(self, spark: SparkSession) -> None:
        """Read what is due now, and go on with that in a thread. spark: a session that nobody else uses."""
        self._spark = spark
        if self._thread is None:
            self._ending = False
            self._read_due()
            self._thread = threading.Thread(target=self._run, name="spark lookups", daemon=True)
            self._thread.start()
        self._wake.set()

    def hurry(self) -> None:
        """Something is due now."""
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
            self._wake.wait(self._pause())
            self._wake.clear()
            self._read_due()

    def _pause(self) -> float:
        due = [at for lookup in self._lookups if (at := lookup.due_at) is not None]
        return max(0.0, min(_LONGEST_WAIT_SECONDS, min(due, default=float("inf")) - time.monotonic()))

    def _read_due(self) -> None:
        with self._lock:
            for lookup in self._lookups:
                spark, due = self._spark, lookup.due_at
                if spark is None or due is None or due > time.monotonic():
                    continue
                lookup.load(partial(read, spark=spark, sources=self._sources), partial(stamp, spark=spark))
