"""The Spark handler: every table that has a rule goes to Spark typed, through its rule, and comes back in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.cells import CellTable, OfShapes, Shape, convert_to_cells
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.few_changes import replace_shapes
from psql_streamer.few_rows import FewRows
from psql_streamer.interfaces import Finding, Handler, Published, Severity, Source, Status
from psql_streamer.model import Batch, Changes, Position, Stats
from psql_streamer.options import HandlerOptions
from psql_streamer.spark.alike import Joined, group_changes, join_changes
from psql_streamer.spark.at_work import AtWork
from psql_streamer.spark.catalyst import Catalyst
from psql_streamer.spark.connect import connect_mode
from psql_streamer.spark.counts import Counts
from psql_streamer.spark.engine_lock import engine_lock
from psql_streamer.spark.executors import find_missing
from psql_streamer.spark.failures import EngineLost
from psql_streamer.spark.fatal_rows import Search, Trouble, make_batch_key
from psql_streamer.spark.job import Job
from psql_streamer.spark.lookups.lookups import Lookups
from psql_streamer.spark.lookups.reviewing import check_lookups
from psql_streamer.spark.options import SparkOptions, TableRule
from psql_streamer.spark.portions import Portions
from psql_streamer.spark.prepared import make_prepared_rules
from psql_streamer.spark.putting_aside import RuleResult, combine, run, run_joined
from psql_streamer.spark.reviewing import review_names, review_rules
from psql_streamer.spark.rule_modules import forget_modules, send_by_value
from psql_streamer.spark.rules import EngineNeeded, Rules
from psql_streamer.spark.running import Runner
from psql_streamer.spark.session import Session, find_java_problem, find_pyspark_problem
from psql_streamer.spark.session_pool import SessionPool
from psql_streamer.spark.shipping import check_files, put_on_path
from psql_streamer.spark.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("psql_streamer.spark")

_DEATHS = 2
"""Of the engine by the same batch: the first may be an accident."""

_MOST_TABLES_NAMED = 3

_SLOW_SECONDS = 5.0
"""After this /status tells which rows Spark has."""

_HANGING_SECONDS = 60.0
"""After this they are a problem."""

_NO_RULES = "no rules in [spark.tables]: nothing goes through Spark, and none is started"


class SparkHandler(Handler):
    """Types the columns of tables that have a rule, applies it, and gives the changes back in commit order.

    What no rule is for is handed on as it came. Without any rule there is no engine.
    """

    Options: ClassVar[type[HandlerOptions]] = SparkOptions
    _warms_up = True

    def __init__(self, name: str, options: HandlerOptions) -> None:
        super().__init__(name, options)
        self._options = cast(SparkOptions, options)
        is_local = self._options.remote is None and self._options.master.startswith("local")
        self.batches_at_once = 1 if is_local else batching.SPARK_BATCHES
        self._session = Session(self._options)
        self._counts = Counts()
        self._at_work = AtWork()
        self._runner = Runner(self._session.describe_end, self._counts)
        self._portions = Portions()
        self._lookups = Lookups(self._options.lookups)
        self._pool: SessionPool | None = None
        self._own_rules: Mapping[str, TableRule] = {}
        self._broken: frozenset[str] = frozenset()  # rules that a review goes without
        self._found_broken: dict[tuple[str, str | None], HandlerRefused | None] = {}
        self._rules, self._has_rule = Rules({}), OfShapes(self._is_ruled)
        self._trouble: Trouble | None = None
        self._interrupted = threading.Event()
        self._engine = ""
        self._in_spark: tuple[float, str] | None = None  # since when, and what
        self._state = Status(True, "not started")

    @property
    def same_for_all_sinks(self) -> bool:
        """See Handler.same_for_all_sinks."""
        return self._options.same_for_all_sinks

    @property
    def is_stateless(self) -> bool:
        """See Handler.is_stateless: lookups hold what they have read."""
        return not self._options.lookups

    @property
    def shared_engine(self) -> Hashable:
        """See Handler.shared_engine: a process has one local Spark."""
        return self._options.master, self._options.remote, tuple(sorted(self._options.conf.items()))

    @property
    def most_rows(self) -> int | None:
        """See Handler.most_rows."""
        return self._portions.rows

    def attach(self, sources: Mapping[str, Source], folder: Path | None) -> None:
        """See Handler.attach: lookups read tables of sources."""
        self._lookups.attach(sources, folder)

    def begin_stream(self, source: str, position: Position | None) -> None:
        """See Handler.begin_stream."""
        self._lookups.begin_stream(source, position)

    def note_durable(self, source: str, position: Position) -> None:
        """See Handler.note_durable."""
        self._lookups.note_durable(source, position)

    def check(self) -> Iterable[Finding]:
        """pyspark, Java, and the functions that the rules name. Starts no JVM; without rules nothing is needed."""
        if not self._options.tables:
            return
        for problem in (find_pyspark_problem(), None if self._options.remote else find_java_problem()):
            if problem is not None:
                yield Finding(Severity.ERROR, *problem)
        yield from check_lookups(self._options.lookups, None if self._options.remote else self._options.master)
        yield from check_files(self._options)
        put_on_path(self._options)
        for name, rule in ((name, rule) for name, rules in self._options.tables.items() for rule in rules):
            error = self._look_up_broken_function(name, rule)
            if error is not None:
                yield Finding(Severity.ERROR, error.what, error.remedy, alone=True)

    def review(self, published: Published) -> Iterable[Finding]:
        """See Handler.review: rules that fit no table, and what Spark's analysis says of the others."""
        if not self._options.tables:
            return
        self._own_rules = self._options.select_rules(self.sink)
        everywhere = [table for of_source in published.values() for table in of_source]
        tables = everywhere
        if not self.same_for_all_sinks:
            tables = [table for source, tables in published.items() if source in self.sources for table in tables]
        yield from review_names(self._own_rules, tables, everywhere)
        if not self._own_rules:
            return
        if self._pool is None:  # `check` has told of those whose function is broken: the others are looked at
            found = {name: self._look_up_broken_function(name, rule) for name, rule in self._own_rules.items()}
            self._broken = frozenset(name for name, error in found.items() if error is not None)
        spark = self._revive_engine()
        modules, cluster = self._options.function_modules, self._session.cluster
        missing = find_missing(spark, modules, cluster.name) if modules and cluster is not None else None
        if missing is not None:
            yield Finding(Severity.ERROR, missing.what, missing.remedy)
            return
        self._lookups.advance()
        yield from self._lookups.review(published, spark)
        yield from review_rules(self._rules, tables, self._runner, self._lookups, spark, self._warms_up)

    def start(self) -> None:
        """Start the JVM (some seconds), or connect; again after HandlerUnavailable. No rules, no engine."""
        self._broken = frozenset()
        self._own_rules = self._options.select_rules(self.sink)
        self._portions = Portions(self._own_rules.values())
        if not self._own_rules:
            self._state = Status(True, _NO_RULES)
            return
        self._interrupted.clear()
        with suppress(EngineNeeded), connect_mode(self._options.remote is not None):
            self._load_rules()  # what is wrong with them need not wait for an engine
        spark = self._begin()
        # A batch waits for an engine that is started again.
        if self._warms_up and self._session.take_fresh() and self._session.starts == 1:
            warm_up(spark, self._runner.planner.prepared)

    def handle(self, batch: Batch) -> Batch:
        """Every table of the batch that has a rule through Spark. The others stay as they are."""
        if not self._options.tables:
            return batch
        if self._lookups.prepare(batch):
            self._runner.planner.forget()
        cells = convert_to_cells(batch.changes)
        has_rule = np.array(self._has_rule.make_each(cells.shapes), np.bool_)
        ruled = cells.select_views(has_rule) if has_rule.any() else ()
        if not ruled:
            self._lookups.keep()
            return batch
        for change in batch.schema_changes:
            self._runner.telling.tell_of_lost_columns(change, self._rules.find(change.relation))
        began = time.monotonic()
        self._in_spark = began, _describe_rows(ruled)
        try:
            done = self._run_with_either_version(batch, ruled)
        except HandlerError as error:
            self._state = Status(False, str(error))
            raise
        finally:
            self._in_spark = None
        self._trouble = None
        self._lookups.keep()
        self._note(ruled, done, time.monotonic() - began)
        made = tuple(changes for result in done for changes in result.made)
        joined = [table for result in done for table in result.cells]
        return replace(
            batch,
            nbytes=batch.nbytes + self._portions.note(cells.rows, made),
            changes=_replace_ruled(batch.changes, cells, has_rule, made, joined),
            rejections=(*batch.rejections, *(rejection for result in done for rejection in result.rejections)),
        )

    def start_cold(self) -> None:
        """See Handler.start_cold: the JVM is not made fast before the first batch."""
        self._warms_up = False
        self.start()

    def interrupt(self) -> None:
        """See Handler.interrupt: plans that run and jobs fail, also those that wait for an executor."""
        self._interrupted.set()
        # An engine that hangs does not take that either.
        threading.Thread(target=self._session.cancel_jobs, name="spark cancels", daemon=True).start()
        self._runner.planner.cancel()

    def stop(self) -> None:
        """Let the session go; the last handler to stop ends the JVM."""
        self._lookups.stop()
        self._leave()
        self._session.stop()

    def status(self) -> Status:
        """Which engine, what went through it last, and the lookups; the reason when it did not, and what a cluster
        lacks."""
        cluster = self._session.cluster
        if cluster is not None and cluster.missing is not None:
            return Status(False, cluster.missing)
        state = self._state
        parts = [state.reason, self._lookups.describe(), self._describe_slow_batch()]
        ok = state.ok and self._lookups.well and self._seconds_in_spark < _HANGING_SECONDS
        return Status(ok, "; ".join(part for part in parts if part))

    def stats(self) -> Stats:
        """The numbers of Counts, and of each lookup; of an application on a cluster `executors` as well."""
        cluster, lookups = self._session.cluster, self._lookups.stats()
        executors = None if cluster is None else cluster.executors
        more = {"lookups": lookups, "executors": executors}
        return {**self._counts.stats(), **{name: value for name, value in more.items() if value not in (None, {})}}

    def _load_rules(self) -> None:
        """With an engine: modules of functions may make user-defined functions when they are imported, which are of
        that engine."""
        put_on_path(self._options)
        self._rules, self._has_rule = self._make_rules(), OfShapes(self._is_ruled)
        self._lookups.note_rules(self._own_rules)

    def _begin(self) -> SparkSession:
        """An engine that is there, and what runs on it."""
        self._leave()
        restarts = self._session.starts
        self._state = Status(not restarts, "starting Spark again" if restarts else "starting Spark")
        try:
            spark = self._session.start()
        except HandlerError as error:
            self._state = Status(False, str(error))
            raise
        if restarts and self._session.starts > restarts:
            self._counts.add("engine_restarts")
            forget_modules(self._options.function_modules)
        self._load_rules()
        send_by_value()
        remote = self._options.remote is not None
        self._runner.planner.catalyst = None if remote else Catalyst(spark)
        self._runner.planner.prepared = None if remote else make_prepared_rules(spark)
        self._pool = SessionPool(spark, another=self._session.make_another)
        self._lookups.begin(spark)
        self._runner.cluster = "" if self._session.cluster is None else self._session.cluster.name
        self._engine = f"Spark {version('pyspark')} on {'a Spark Connect server' if remote else self._options.master}"
        if self._session.shipped:
            log.info("shipped to the executors: %s", self._session.shipped)
        self._state = Status(True, f"{self._engine}, nothing has gone through it yet")
        return spark

    def _run_with_either_version(self, batch: Batch, ruled: Sequence[Changes]) -> list[RuleResult]:
        """With the lookups as they are; where that fails, with the versions before of those that are new to a rule."""
        try:
            return self._run_rules_or_give_up(batch, ruled)
        except HandlerError as error:
            if isinstance(error, EngineLost) or self._interrupted.is_set() or not self._lookups.go_back():
                raise
            failed = error
        self._runner.planner.forget()
        try:
            done = self._run_rules_or_give_up(batch, ruled)
        except HandlerError:
            self._lookups.go_on()
            self._runner.planner.forget()
            raise failed from None
        self._lookups.refuse(failed)
        return done

    def _run_rules_or_give_up(self, batch: Batch, ruled: Sequence[Changes]) -> list[RuleResult]:
        try:
            return self._run_rules(batch, ruled)
        except HandlerUnavailable:
            self._give_up()  # a job that was cancelled does not say why
            raise

    def _run_rules(self, batch: Batch, ruled: Sequence[Changes]) -> list[RuleResult]:
        trouble = self._find_trouble(batch)
        if trouble.deaths < _DEATHS:
            try:
                with engine_lock.hold_shared(self._give_up):
                    return self._run_tables(batch, ruled)
            except HandlerUnavailable as error:
                self._session.doubt()
                if not self._session.alive:
                    self._leave()
                    self._refuse_forgotten()
                # On a cluster, executors that a row ends are looked for in the same way; a server's are not ours.
                if not isinstance(error, EngineLost) or self._options.remote is not None:
                    raise
                self._trouble = trouble
                trouble.deaths += 1
                if trouble.deaths < _DEATHS:
                    raise _blame_all(error, ruled) from None
        with engine_lock.hold_alone(self._give_up):
            search = Search(self._runner, self._renew_job, lambda: self._session.memory, trouble)
            spark = self._revive_engine()
            done = search.run(
                [piece for changes in ruled for piece in self._split_job(self._make_job(spark, changes, batch))]
            )
            self._revive_engine()
        return done

    def _run_tables(self, batch: Batch, ruled: Sequence[Changes]) -> list[RuleResult]:
        """Tables that their rule sees alike as one, the others at once."""
        pool = self._require_pool()
        return pool.run_each(partial(self._run_joined, batch), self._join_groups(pool.spark, batch, ruled))

    def _run_joined(self, batch: Batch, spark: SparkSession, one: Joined) -> RuleResult:
        self._give_up()  # tables that wait for a thread are not begun any more
        job = replace(self._make_job(spark, one.changes, batch), tables=one.tables)
        with self._at_work.note(job.where):
            pieces = self._split_job(job)
            if len(pieces) == 1:
                return run_joined(self._runner, pieces[0], one.members)
            if one.tables is None:
                return combine(run(self._runner, piece) for piece in pieces)
        return combine(self._run_joined(batch, spark, join_changes([changes])) for changes in one.members)

    def _look_up_broken_function(self, name: str, rule: TableRule) -> HandlerRefused | None:
        """See _find_broken_function. A module that fails is imported once: what it does then, it does once."""
        key = name, rule.function
        if key not in self._found_broken:
            self._found_broken[key] = self._find_broken_function(name, rule)
        return self._found_broken[key]

    def _find_broken_function(self, name: str, rule: TableRule) -> HandlerRefused | None:
        """Why a rule's function cannot be had, if that can be said without Spark."""
        try:
            with connect_mode(self._options.remote is not None):
                Rules({name: rule})
        except EngineNeeded:
            return None  # `review` has one
        except HandlerRefused as error:
            return error
        return None

    def _make_rules(self) -> Rules:
        rules = {name: rule for name, rule in self._own_rules.items() if name not in self._broken}
        return Rules(rules, self._options.on_error, self._options.mask_secret)

    def _is_ruled(self, shape: Shape) -> bool:
        return not self._rules.find(shape.relation).identity

    def _join_groups(self, spark: SparkSession, batch: Batch, ruled: Sequence[Changes]) -> Iterator[Joined]:
        for group in group_changes(ruled, self._rules.find):
            if len(group) == 1 or self._runner.takes_rows_one_by_one(self._make_job(spark, group[0], batch)):
                yield join_changes(group)
            else:
                yield from (join_changes([changes]) for changes in group)

    def _make_job(self, spark: SparkSession, changes: Changes, batch: Batch) -> Job:
        rule = self._rules.find(changes.relation)
        return Job(
            *(spark, rule, changes, batch.transactions, batch.source),
            show_lookups=self._lookups.make_shower(rule),
            check_lookups=self._lookups.check_views,
        )

    def _split_job(self, job: Job) -> list[Job]:
        """The job, or several where a lookup changes between its changes."""
        shown = self._lookups.split_changes(job.rule, job.changes, lambda: self._runner.find_plan(job))
        return [
            replace(
                job if piece.rows is None else job.narrow(job.changes.take(piece.rows)),
                show_lookups=piece.show,
                lookup_versions=piece.versions,
            )
            for piece in shown
        ]

    def _renew_job(self, job: Job) -> Job:
        """The same on an engine that lives, with a function that was imported for it."""
        spark = self._revive_engine()
        return replace(job, spark=spark, rule=self._rules.find(job.changes.relation))

    def _find_trouble(self, batch: Batch) -> Trouble:
        key = make_batch_key(batch)
        return self._trouble if self._trouble is not None and self._trouble.batch == key else Trouble(key)

    def _revive_engine(self) -> SparkSession:
        """A session on an engine that lives."""
        self._give_up()
        if self._pool is None or not self._session.alive:
            return self._begin()
        return self._session.start()

    def _give_up(self) -> None:
        if self._interrupted.is_set():
            raise HandlerUnavailable("interrupted before the batch had gone through Spark")

    def _require_pool(self) -> SessionPool:
        if self._pool is None:
            self._begin()
        how = self._session.describe_end(0.0)
        if how is not None:
            raise HandlerUnavailable(f"the Spark JVM ended ({how})", "it is started again")
        self._refuse_forgotten()
        return cast(SessionPool, self._pool)

    def _refuse_forgotten(self) -> None:
        cluster = self._session.cluster
        if cluster is not None and cluster.lost:
            raise HandlerUnavailable(
                f"{cluster.name} has no application of this service any more", "it is started again"
            )

    def _leave(self) -> None:
        self._lookups.leave()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _note(self, ruled: Sequence[Changes], done: list[RuleResult], seconds: float) -> None:
        rows = sum(map(len, ruled))
        aside = sum(len(rejection.changes) for result in done for rejection in result.rejections)
        self._counts.add("batches")
        self._counts.add("rows", rows)
        self._counts.add("dead_lettered", aside)
        for rejection in chain.from_iterable(result.rejections for result in done):
            self._runner.telling.tell_of_put_aside(rejection)
        put_aside = f", {aside} of them put aside" if aside else ""
        what = f"{_describe_rows(ruled)} in {seconds * 1000:.0f} ms{put_aside}"
        self._state = Status(True, f"{self._engine}, last batch: {what}")

    def _describe_slow_batch(self) -> str:
        """What to say of rows that are in Spark for a while; empty otherwise."""
        in_spark, seconds = self._in_spark, self._seconds_in_spark
        if in_spark is None or seconds < _SLOW_SECONDS:
            return ""
        longest = self._at_work.describe_longest()
        now = f", now {longest}" if longest else ""
        return f"{in_spark[1]} have been in Spark for {seconds:.0f} s{now}"

    @property
    def _seconds_in_spark(self) -> float:
        in_spark = self._in_spark
        return 0.0 if in_spark is None else time.monotonic() - in_spark[0]


def _describe_rows(ruled: Sequence[Changes]) -> str:
    others = f" and {len(ruled) - 1} more" if len(ruled) > 1 else ""
    return f"{sum(map(len, ruled))} rows of {ruled[0].relation}{others}"


def _replace_ruled(
    given: Sequence[Changes],
    cells: CellTable,
    has_rule: NDArray[np.bool_],
    made: tuple[Changes, ...],
    joined: Sequence[CellTable],
) -> Sequence[Changes]:
    """The changes of a batch, with what the rules made in place of those of the shapes that have one.

    cells: the changes as a table. made: of single tables. joined: of several tables at once.
    """
    apart = np.count_nonzero(~has_rule[cells.shape]) + sum(table.rows for table in joined)
    if isinstance(given, FewRows) and apart + sum(map(len, made)) <= batching.FEW_ROWS:
        few = replace_shapes(given, has_rule.tolist(), [*made, *chain.from_iterable(joined)])
        if few is not None:
            return few
    if not apart:
        return made
    return CellTable.merge([cells.drop_shapes(has_rule), *joined, CellTable.from_changes(made)])


def _blame_all(error: EngineLost, ruled: Sequence[Changes]) -> EngineLost:
    """Whichever table it was that ended the engine, the others' jobs ended with it."""
    names = ", ".join(str(changes.relation) for changes in ruled[:_MOST_TABLES_NAMED])
    more = f" and {len(ruled) - _MOST_TABLES_NAMED} more tables" if len(ruled) > _MOST_TABLES_NAMED else ""
    if len(ruled) == 1:
        return error
    return EngineLost(f"{names}{more}: {error.happened}", error.remedy, error.happened, error.how, error.cure)
