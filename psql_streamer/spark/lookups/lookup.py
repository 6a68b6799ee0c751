"""A lookup that is read anew now and then: its versions, and what becomes of batches when it is too old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.model import Stats
from psql_streamer.retry_limits import FIRST_LOOKUP_PAUSE_SECONDS, LIMITS, Backoff, Tried
from psql_streamer.spark.lookups.known_types import KnownTypes, find_other_types, find_types
from psql_streamer.spark.lookups.options import LOOK_AT_FILES_SECONDS, LookupOptions
from psql_streamer.spark.lookups.version import Version, let_go

log = logging.getLogger("psql_streamer.spark")

_SLOW_SECONDS = 5.0
"""After this /status tells that a reading takes its time."""

_MEND_IT = "correct what the lookup reads, or have the rule take it (try_cast, CAST of the other side to a string)"


class Lookup:
    """Its current version is what rules see. One that was read beside it takes its place between two batches.

    The one before is kept until each rule that may use it has run with the new one: `go_back` puts it back.

    find_user: a column of it -> a rule that names it, if one does. users: rules that may use it.
    `load` is called by one thread, `advance` and `require` by the handler's; `describe` and `stats` by any.
    """

    def __init__(self, name: str, options: LookupOptions) -> None:
        self.name = name
        self.options = options
        self.current: Version | None = None
        self.find_user: Callable[[str], str | None] = lambda _: None
        self.users: Collection[str] = ()
        self._columns: Sequence[str] = ()  # of the newest version that there was
        self._types: KnownTypes = {}  # of the versions that there were, the newest that is known of each column
        self._next: Version | None = None
        self._before: Version | None = None
        self._withdrawn: Version | None = None
        self._asked: set[str] = set()  # rules that ran with the current version, or are about to
        self._proven: set[str] = set()  # those that did
        self._is_doubted = False  # whether a version was refused since one was proven
        self._lock = threading.Lock()
        self._problem = ""
        self._backoff = _make_backoff()  # its attempts are the failures since the last success
        self._failed = 0
        self._loads = 0
        self._due_at = 0.0
        self._fresh_at: float | None = None  # when what is held was known to be what is there
        self._reading_since: float | None = None
        self._fresh_before: float | None = None  # the same of the version before

    # The thread that loads.

    @property
    def due_at(self) -> float | None:
        """time.monotonic() from which on it is to be loaded, or looked at; None for never."""
        return None if self._due_at == float("inf") else self._due_at

    def load(self, read: Callable[[LookupOptions], Version], stamp: Callable[[LookupOptions], str]) -> None:
        """Read it, unless its files are as they were. Never raises an error: the version that is there stays."""
        began = self._reading_since = time.monotonic()
        try:
            newest = self._newest
            is_other = newest is None or self.options.refresh != "change" or stamp(self.options) != newest.stamp
            if is_other:
                self._take(read(self.options))
        except HandlerError as error:
            self._note_failure(error)
            return
        except Exception as error:  # whatever it is: a lookup that nobody reads any more would grow old in silence
            log.debug("where it came from", exc_info=True)
            # Its text may quote values.
            self._note_failure(HandlerUnavailable(f"the reading ended with {type(error).__name__}"))
            return
        finally:
            self._reading_since = None
        with self._lock:
            self._fresh_at = began
            self._due_at = time.monotonic() + self._interval
            if not is_other and self._next is None and self._before is None:
                self._is_doubted = False  # the files are what they were before the version that was refused
            if not self._is_doubted:
                self._note_success()

    def forget(self) -> None:
        """The engine that held it is gone: read it again, if it was not held here."""
        with self._lock:
            held = [version for version in (self.current, self._next, self._before) if version is not None]
            if any(version.table is None for version in held):
                self.current = self._next = self._before = None
                self._due_at = 0.0

    # The handler's thread.

    def advance(self) -> bool:
        """Put a version that was read beside the current one in its place; whether there was one."""
        with self._lock:
            version, self._next = self._next, None
            if version is None:
                return False
            last = self.current
            if last is not None and (self._proven or self._before is None):
                self._let_go_of_before()
                self._before = last
            elif last is not None:
                let_go(last)
            self.current, self._asked, self._proven = version, set(), set()
            return True

    def prove(self) -> None:
        """The rules of a batch have run with it. The version before is let go when all have that may use it."""
        with self._lock:
            if not self._asked - self._proven:
                return
            self._proven |= self._asked
            if self._is_doubted and self._before is not None:  # else it is the one to which rules went back
                self._is_doubted = False
                self._note_success()
            if self._proven.issuperset(self.users):
                self._let_go_of_before()

    def go_back(self) -> bool:
        """Put the version before in place of one with which some rule of the batch has not run yet; whether there was
        one. `refuse` or `go_on` follows."""
        before = self._before
        if before is None or not self._asked - self._proven or before.is_lost:
            return False
        with self._lock:
            self._withdrawn, self.current = self.current, before
            self._fresh_at, self._fresh_before = self._fresh_before, self._fresh_at
            return True

    def refuse(self, error: HandlerError) -> None:
        """The batch failed with the version that was taken back, and not with the one before."""
        with self._lock:
            refused, self._withdrawn, self._before = self._withdrawn, None, None
            if refused is None:
                return
            for version in filter(None, (refused, self._next)):
                let_go(version)
            self._next, self._is_doubted = None, True
            if self.current is not None:
                self._columns, self._types = self.current.schema.names, find_types(self.current)
        self._note_failure(HandlerRefused(f"with what is there now a rule fails: {error.what}", _MEND_IT))

    def go_on(self) -> None:
        """The batch fails with either version."""
        with self._lock:
            if self._withdrawn is not None:
                self.current, self._withdrawn = self._withdrawn, None
                self._fresh_at, self._fresh_before = self._fresh_before, self._fresh_at

    def let_go_if_lost(self) -> bool:
        """Read it again if Spark does not hold it any more: from then on every query would read the files as they are,
        and up to their length of before. Whether it is so.
        """
        current = self.current
        if current is None or not current.is_lost:  # Spark is asked: a look at /status does not wait for that
            return False
        with self._lock:
            self.current, self._due_at = None, 0.0
            self._problem = "Spark does not hold it any more, as behind clearCache(), and it is read again"
        log.warning("lookup %s: %s", self.name, self._problem)
        return True

    def require(self, rule: str) -> Version:
        """The version for a rule. HandlerUnavailable without one, or as onStale says of one that is too old."""
        self._asked.add(rule)
        if self.current is None:
            problem = self._problem or "it is being read"
            raise HandlerUnavailable(f"lookup {self.name} has not been read yet: {problem}")
        if self.options.on_stale != "use" and self.is_stale:
            what = f"lookup {self.name} is {self._shown_age} old, more than maxAge" + self._because
            if self.options.on_stale == "stop":
                raise HandlerRefused(what, 'mend what keeps it from being read, or set onStale = "use"')
            raise HandlerUnavailable(what, 'batches wait for it: onStale = "use" goes on with it')
        return self.current

    # Any thread.

    @property
    def age(self) -> float | None:
        """Seconds since it was known to be what is there; None before it was read."""
        return None if self._fresh_at is None else time.monotonic() - self._fresh_at

    @property
    def is_stale(self) -> bool:
        """Whether it is older than maxAge."""
        age = self.age
        return age is not None and self.options.max_age is not None and age > self.options.max_age

    @property
    def well(self) -> bool:
        """Whether rules can use it."""
        return self._newest is not None and not self.is_stale

    def describe(self) -> str:
        """A part of a sentence for /status."""
        version = self._newest
        if version is None:
            return f"lookup {self.name} not read: {self._problem or 'this is its first reading'}{self._shown_reading}"
        stale = ", too old" if self.is_stale else ""
        what = f"lookup {self.name} of {version.rows} rows, {self._shown_age} old{stale}"
        return f"{what}{self._because}{self._shown_reading}"

    def stats(self) -> Stats:
        """rows, bytes, age_seconds, loads, failed_loads; without a version no rows and no age."""
        version, age = self._newest, self.age
        held = {} if version is None else {"rows": version.rows, "bytes": version.nbytes}
        aged = {} if age is None else {"age_seconds": round(age, 3)}
        return {**held, **aged, "loads": self._loads, "failed_loads": self._failed}

    @property
    def problem(self) -> str:
        """Why it could not be read the last time; empty when it could."""
        return self._problem

    @property
    def _newest(self) -> Version | None:
        return self._next or self.current

    @property
    def _shown_age(self) -> str:
        age = self.age or 0.0
        return f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min"

    @property
    def _shown_reading(self) -> str:
        since = self._reading_since
        seconds = 0.0 if since is None else time.monotonic() - since
        return f", being read for {seconds:.0f} s" if seconds >= _SLOW_SECONDS else ""

    @property
    def _because(self) -> str:
        failures = self._backoff.attempts
        return f" (read {failures} times in vain: {self._problem})" if failures else ""

    @property
    def _interval(self) -> float:
        if self.options.refresh is None:
            return float("inf")
        return LOOK_AT_FILES_SECONDS if self.options.refresh == "change" else self.options.refresh

    def _take(self, version: Version) -> None:
        self._refuse_other_columns(version)
        with self._lock:
            self._columns = version.schema.names
            self._types = {**self._types, **find_types(version)}
            if self._next is not None:
                let_go(self._next)
            elif self._before is None:
                self._fresh_before = self._fresh_at
            self._next = version
            self._loads += 1
        log.info("lookup %s: %d rows were read", self.name, version.rows)
        if self.options.schema_ is not None and (empty := _list_empty_columns(version)):
            told = "lookup %s: of its schema %s has no value in any row: is that what the files call it?"
            log.warning(told, self.name, ", ".join(empty))

    def _refuse_other_columns(self, version: Version) -> None:
        """HandlerRefused when a column is gone, or of another type, that a rule names: with this version the rule could
        not be planned, or would fail for every row."""
        there = {name.lower() for name in version.schema.names}
        for name in self._columns:
            rule = self.find_user(name) if name.lower() not in there else None
            if rule is not None:
                let_go(version)
                raise HandlerRefused(
                    f"what is there now has no column {name}, which the rule {rule!r} may use",
                    "give it the column again, or change the rule and start the service again",
                )
        for path, was, now in find_other_types(self._types, version):
            rule = next(filter(None, (self.find_user(name) for name in reversed(path) if name != "[]")), None)
            if rule is not None and (now or self.find_user(path[-1]) is not None):
                let_go(version)
                what = f"is of type {now}, and was {was}" if now else "is gone"
                raise HandlerRefused(
                    f"of what is there now {'.'.join(path)} {what}; the rule {rule!r} may use it",
                    "give it the type again (files: by a schema in [spark.lookups]), or start the service again",
                )

    def _note_success(self) -> None:
        if self._backoff.attempts:
            log.info("lookup %s: read again after %d failures", self.name, self._backoff.attempts)
        self._problem, self._backoff = "", _make_backoff()

    def _let_go_of_before(self) -> None:
        version, self._before = self._before, None
        if version is not None:
            let_go(version)

    def _note_failure(self, error: HandlerError) -> None:
        with self._lock:
            self._problem = str(error)
            self._failed += 1
            pause = self._backoff.draw_pause()
            self._due_at = time.monotonic() + pause
        kept = "the version that is there is kept" if self._newest is not None else "rules that use it wait"
        log.warning("lookup %s cannot be read: %s; %s; tried again in %.0f s", self.name, error, kept, pause)


def _list_empty_columns(version: Version) -> list[str]:
    """What files do not have is null; so are all values of a name that was misspelt."""
    if version.table is None or not version.rows:
        return []
    named = zip(version.table.column_names, version.table.columns, strict=True)
    return [name for name, column in named if column.null_count == version.rows]


def _make_backoff() -> Backoff:
    return Backoff(FIRST_LOOKUP_PAUSE_SECONDS, LIMITS[Tried.LOOKUP].longest_pause)
