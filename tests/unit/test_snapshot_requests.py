"""What is asked of a source's snapshots is on disk before it is answered, and told to the source, whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition, StoredSnapshot
from psql_streamer.errors import (
    NoSuchSnapshot,
    SnapshotConflict,
    SnapshotError,
    SnapshotUnclear,
    SourceRefused,
    SourceUnavailable,
    StoreError,
)
from psql_streamer.interfaces import KnownSnapshot, Source
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Position
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.snapshot_requests import MOST_ENDED, SnapshotRequests
from psql_streamer.pipeline.snapshot_tables import find_overlap
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from psql_streamer.pipeline.source_runner import SourceRunner
from psql_streamer.snapshot_figures import show_briefly
from psql_streamer.snapshots import SnapshotRequest, SnapshotState, TableRequest, Wanted, describe_listing
from tests.snapshot_source import MadeUpOptions, MadeUpSource
from tests.unit.test_source_pace import Scripted

A, B = TableRequest("public.a"), TableRequest("public.b", "id > 5")


def made_up(name: str = "db1", **options: object) -> MadeUpSource:
    return MadeUpSource(name, MadeUpOptions.model_validate({"type": "made up"} | options))


@dataclass
class Asked:
    """A source that was started, and its requests; `until` reads the source."""

    part: MadeUpSource
    requests: SnapshotRequests
    store: Store
    read: int = 0

    def until(self, condition: Callable[[KnownSnapshot], bool], name: str) -> KnownSnapshot:
        """Read, number and store batches, as a SourceRunner does."""
        for _ in range(1000):
            if condition(found := self.requests.find(name)):
                return found
            self.turn()
        raise AssertionError(f"{name} stays {found}")

    def turn(self) -> None:
        self.requests.note_ended(self.read)
        self.requests._look_at = 0.0
        batch = self.part.read(0.0)
        assert batch is not None
        self.read += 1
        self.store.put("db1", StoredPosition(batch.position, {}))
        self.requests.settle(self.read)


def of(part: Source, store: Store) -> SnapshotRequests:
    requests = SnapshotRequests(part, store, lambda: True, threading.Event())
    requests.load()
    requests.pass_on()
    return requests


@pytest.fixture
def asked(store: Store, tmp_path: Path) -> Asked:
    part = made_up(gate=tmp_path / "gate", initial="initial")
    requests = of(part, store)
    part.start(None)
    return Asked(part, requests, store)


@pytest.fixture
def free(store: Store) -> Asked:
    """Chunks come as they are read, and the source begins nothing by itself."""
    part = made_up()
    requests = of(part, store)
    part.start(None)
    return Asked(part, requests, store)


def cancel(asked: Asked, name: str) -> None:
    asked.requests.want(name, Wanted.CANCEL)
    asked.until(lambda found: found.progress.state is SnapshotState.CANCELLED, name)


@pytest.mark.behaviour("N18")
def test_a_request_is_on_disk_and_told_to_the_source_when_it_is_answered(free: Asked) -> None:
    found = free.requests.ask([A, B])
    [stored] = free.store.read_snapshots("db1")
    assert (stored.request.id, stored.request.tables) == (found.progress.id, (A, B))
    assert free.part.requests == [stored.request]
    assert stored.request.asked_at == pytest.approx(time.time(), abs=60)
    assert (found.source, found.requested, found.wanted) == ("db1", (A, B), Wanted.RUN)


@pytest.mark.parametrize(("count", "said"), [(2, "public.t0, public.t1"), (3000, "public.t9 and 2990 more")])
def test_the_log_names_the_first_tables_that_were_asked_for_and_how_many_more(
    store: Store, caplog: pytest.LogCaptureFixture, count: int, said: str
) -> None:
    tables = [TableRequest(f"public.t{number}") for number in range(count)]
    requests = of(part := made_up(tables={one.table: 1 for one in tables}), store)
    part.start(None)
    with caplog.at_level("INFO"):
        requests.ask(tables)
    [line] = [message for message in caplog.messages if "was asked for" in message]
    assert line.endswith(said)
    assert len(line) < 300


def test_a_second_snapshot_of_all_tables_is_told_that_all_are_in_the_first(store: Store) -> None:
    requests = of(part := made_up(tables={}), store)  # as while the first one's tables are looked up
    part.start(None)
    first = requests.ask([]).progress.id
    with pytest.raises(SnapshotConflict, match=f"^all tables are in snapshot {first}, which has not ended"):
        requests.ask([])


def test_an_id_is_the_time_and_some_letters_and_no_other_has_it(free: Asked) -> None:
    names = [free.requests.ask([TableRequest(table)]).progress.id for table in ("public.a", "public.b")]
    assert len(set(names)) == 2
    for name in names:
        date, clock, rest = name.split("-")
        assert (len(date), len(clock), len(rest)) == (8, 6, 4)
        assert (date + clock).isdigit()


def test_what_cannot_be_stored_is_not_told_to_the_source(free: Asked) -> None:
    free.store.close()
    with pytest.raises(StoreError, match="is not open"):
        free.requests.ask([A])
    assert free.part.requests == []
    assert free.requests.list_known() == []


def test_what_the_source_refuses_is_not_stored(free: Asked) -> None:
    with pytest.raises(SourceRefused, match=r"table public\.c is not published: add it"):
        free.requests.ask([TableRequest("public.c")])
    assert free.store.read_snapshots("db1") == []


@pytest.mark.behaviour("N19")
@pytest.mark.parametrize("tables", [[A], [], [TableRequest("public.*")], [B, A]])
def test_a_table_of_an_unfinished_snapshot_is_refused_with_that_snapshots_id(
    free: Asked, tables: list[TableRequest]
) -> None:
    first = free.requests.ask([A]).progress.id
    with pytest.raises(SnapshotConflict, match=f"is in snapshot {first}, which has not ended: wait for it, or cancel"):
        free.requests.ask(tables)
    free.requests.ask([B])
    cancel(free, first)
    free.requests.ask([A])


def test_a_snapshot_of_the_sources_own_has_its_tables_too(asked: Asked) -> None:
    with pytest.raises(SnapshotConflict, match=r"table public\.a is in snapshot initial, which has not ended"):
        asked.requests.ask([A])


@pytest.mark.behaviour("N20")
def test_a_snapshot_is_paused_goes_on_and_is_cancelled(free: Asked) -> None:
    name = free.requests.ask([A]).progress.id
    free.turn()
    rows = free.until(lambda found: found.progress.rows > 0, name).progress.rows
    assert free.requests.want(name, Wanted.PAUSE).wanted is Wanted.PAUSE
    free.until(lambda found: found.progress.state is SnapshotState.PAUSED, name)
    for _ in range(5):
        free.turn()
    assert free.requests.find(name).progress.rows == rows
    free.requests.want(name, Wanted.RUN)
    free.until(lambda found: found.progress.rows > rows, name)
    cancel(free, name)


def test_the_same_wish_again_is_answered_alike_and_changes_nothing(free: Asked) -> None:
    name = free.requests.ask([A]).progress.id
    assert free.requests.want(name, Wanted.RUN).wanted is Wanted.RUN
    cancel(free, name)
    assert free.requests.want(name, Wanted.CANCEL).progress.state is SnapshotState.CANCELLED


def test_what_is_being_cancelled_is_neither_paused_nor_resumed(free: Asked) -> None:
    name = free.requests.ask([A]).progress.id
    free.requests.want(name, Wanted.CANCEL)
    for wanted in (Wanted.PAUSE, Wanted.RUN):
        with pytest.raises(SnapshotConflict, match=f"snapshot {name} is being cancelled"):
            free.requests.want(name, wanted)


def test_what_has_ended_cannot_be_paused_and_the_reason_is_told(free: Asked) -> None:
    name = free.requests.ask([B, TableRequest("public.broken")]).progress.id
    free.until(lambda found: found.progress.state.ended, name)
    for wanted in Wanted:
        with pytest.raises(
            SnapshotConflict, match=rf"snapshot {name} has ended: it is failed \(public\.broken was not read\)"
        ):
            free.requests.want(name, wanted)


@pytest.mark.behaviour("N21")
def test_a_snapshot_that_the_source_began_by_itself_is_paused_by_a_request_of_its_id(asked: Asked) -> None:
    own = asked.requests.find("initial")
    assert (own.requested, own.progress.on_demand) == ((), False)
    asked.requests.want("initial", Wanted.PAUSE)
    [stored] = asked.store.read_snapshots("db1")
    assert stored.request == SnapshotRequest(
        "initial",
        tuple(TableRequest(table) for table in ("public.a", "public.b", "public.broken")),
        Wanted.PAUSE,
        own.progress.asked_at,
    )
    asked.until(lambda found: found.progress.state is SnapshotState.PAUSED, "initial")


def test_what_was_asked_is_told_to_the_source_before_it_starts_again(free: Asked, store: Store) -> None:
    name = free.requests.ask([A]).progress.id
    free.requests.want(name, Wanted.PAUSE)
    again = made_up()
    requests = of(again, store)
    assert again.requests == [SnapshotRequest(name, (A,), Wanted.PAUSE, again.requests[0].asked_at)]
    assert requests.find(name).wanted is Wanted.PAUSE


def test_requests_keep_the_order_in_which_they_were_asked(free: Asked, store: Store) -> None:
    names = [free.requests.ask([TableRequest(table)]).progress.id for table in ("public.a", "public.b")]
    assert [request.id for request in free.part.requests] == names
    again = made_up()
    of(again, store)
    assert [request.id for request in again.requests] == names


class Silent(MadeUpSource):
    """It tells of no snapshot before it has started."""

    def list_snapshots(self) -> list[object]:  # type: ignore[override]
        return []


def test_a_request_that_the_source_does_not_tell_of_yet_is_shown(store: Store) -> None:
    part = Silent("db1", MadeUpOptions.model_validate({"type": "made up"}))
    requests = of(part, store)
    found = requests.ask([A, B])
    assert (found.progress.state, found.progress.reason) == (
        SnapshotState.WAITING, "the source has not taken it up yet"
    )  # fmt: skip
    assert [table.table for table in found.progress.tables] == ["public.a", "public.b"]
    assert requests.want(found.progress.id, Wanted.PAUSE).progress.state is SnapshotState.PAUSED


@pytest.mark.behaviour("N22")
def test_what_has_ended_is_not_begun_again_by_a_source_whose_position_lost_it(free: Asked, store: Store) -> None:
    name = free.requests.ask([B]).progress.id
    free.until(lambda found: found.progress.state is SnapshotState.DONE, name)
    for _ in range(3):
        free.turn()
    assert [stored.ended for stored in store.read_snapshots("db1")] == [SnapshotState.DONE]
    part = made_up()
    again = Asked(part, of(part, store), store)
    part.start(Position({"chunks": 0, "snapshots": {}}, "of an older version"))
    for _ in range(5):
        again.turn()
    found = again.requests.find(name).progress
    assert (found.state, found.rows) == (SnapshotState.DONE, 0)


def test_an_end_counts_when_the_position_of_a_later_batch_is_on_disk(free: Asked, store: Store) -> None:
    name = free.requests.ask([B]).progress.id
    while not free.requests.find(name).progress.state.ended:
        assert free.part.read(0.0) is not None
        free.read += 1
    free.requests.note_ended(free.read)
    free.requests.settle(free.read)
    assert [stored.ended for stored in store.read_snapshots("db1")] == [None], "its position may be an older one"
    free.requests.settle(free.read + 1)
    assert [stored.ended for stored in store.read_snapshots("db1")] == [SnapshotState.DONE]


def test_the_last_that_ended_are_remembered_and_no_more(free: Asked, store: Store) -> None:
    names = []
    for _ in range(MOST_ENDED + 3):
        names.append(free.requests.ask([TableRequest("public.broken")]).progress.id)
        free.until(lambda found: found.progress.state.ended, names[-1])
        for _ in range(3):
            free.turn()
    paused = free.requests.ask([A]).progress.id
    free.requests.want(paused, Wanted.PAUSE)
    assert [stored.request.id for stored in store.read_snapshots("db1")] == [*names[-MOST_ENDED:], paused]
    assert [request.id for request in free.part.requests] == [*names[-MOST_ENDED:], paused]


def test_a_source_that_is_not_started_is_not_asked(store: Store) -> None:
    requests = SnapshotRequests(made_up(), store, lambda: False, threading.Event())
    requests.load()
    with pytest.raises(SourceUnavailable, match="source db1 has not started yet: ask again"):
        requests.ask([A])


def test_a_source_that_does_not_answer_keeps_nobody_from_cancelling(
    free: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = free.requests.ask([A]).progress.id
    hangs, stopping = threading.Event(), free.requests._stopping
    monkeypatch.setattr(free.part, "review_snapshot", lambda _: hangs.wait(60))
    errors: list[Exception] = []

    def ask() -> None:
        try:
            free.requests.ask([B])
        except SourceUnavailable as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    cancel(free, name)
    stopping.set()
    asking.join(10)
    hangs.set()
    assert [str(error) for error in errors] == [
        "source db1 has not said within 20 s whether it can be taken: look at the server, and ask again"
    ]


def test_two_who_ask_for_a_table_at_once_get_one_snapshot(free: Asked) -> None:
    barrier, outcomes = threading.Barrier(8), list[str]()

    def ask() -> None:
        barrier.wait()
        try:
            outcomes.append(free.requests.ask([A]).progress.state.value)
        except SnapshotConflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["waiting"]
    assert len(free.store.read_snapshots("db1")) == 1


@pytest.mark.parametrize(
    ("asked", "others", "found"),
    [
        (["s.a"], ["s.b"], None),
        (["s.a"], ["s.b", "s.a"], "s.a"),
        (["a"], ["s.a"], "s.a"),
        (["s.*"], ["s.a"], "s.a"),
        (["t.*"], ["s.a"], None),
        (["/^s[.]a/"], ["s.ab"], "s.ab"),
        (["s.a"], ["*"], "s.a"),
        (["s.a*"], ["s.*b"], "s.a*"),
        (["s.a*"], ["s.b*"], None),
        (["s.a*"], ["/b/"], "s.a*"),
        ([], ["s.a"], "s.a"),
        (["s.a"], [], "s.a"),
        ([], [], "*"),
        (["s.[x"], ["s.[x"], "s.[x"),
    ],
)
def test_two_requests_overlap_where_a_table_could_be_of_both(
    asked: list[str], others: list[str], found: str | None
) -> None:
    assert find_overlap(asked, others) == found


def test_thousands_of_tables_are_compared_at_once() -> None:
    asked, others = ([f"{schema}.t{number}" for number in range(5000)] for schema in ("s", "t"))
    began = time.process_time()
    assert find_overlap(asked, [*others, "u.*"]) is None
    assert time.process_time() - began < 2


class Plain(Scripted):
    """A source that takes no snapshots."""


@pytest.fixture
def both(free: Asked, tmp_path: Path) -> Iterator[tuple[SnapshotsOfSources, SnapshotRequests]]:
    """Two sources that take snapshots, and one that does not; the second has one of its own, `initial`."""
    store = Store(tmp_path / "other.lmdb")
    store.open()
    part = made_up("db2", initial="initial")
    second = of(part, store)
    part.start(None)
    plain = of(Plain(1), store)
    yield SnapshotsOfSources({"db1": free.requests, "db2": second, "plain": plain}, ["unused"]), second
    store.close()


def test_a_source_must_be_named_where_several_take_snapshots(
    both: tuple[SnapshotsOfSources, SnapshotRequests],
) -> None:
    snapshots, _ = both
    assert list(snapshots.list_known()) == ["db1", "db2"]
    with pytest.raises(SnapshotUnclear, match="sources db1, db2 take snapshots: say which one is meant with source"):
        snapshots.ask(None, [A])
    with pytest.raises(NoSuchSnapshot, match=r'there is no source "db3"; did you mean db'):
        snapshots.ask("db3", [A])
    with pytest.raises(SnapshotConflict, match="source unused is not started: no sink takes from it"):
        snapshots.ask("unused", [A])
    with pytest.raises(SourceRefused, match="takes no snapshots: take the rows that are there by other means"):
        snapshots.ask("plain", [A])
    assert snapshots.ask("db1", [A]).source == "db1"


def test_an_id_names_one_snapshot_unless_two_sources_have_it(
    both: tuple[SnapshotsOfSources, SnapshotRequests], free: Asked
) -> None:
    snapshots, _ = both
    assert snapshots.find(None, "initial").source == "db2"
    assert snapshots.want(None, "initial", Wanted.PAUSE).wanted is Wanted.PAUSE
    with pytest.raises(NoSuchSnapshot, match=f"there is no snapshot x: {describe_listing()}"):
        snapshots.find(None, "x")
    with pytest.raises(NoSuchSnapshot, match="source db1 has no snapshot initial"):
        snapshots.find("db1", "initial")
    free.part._found["initial"] = snapshots.find(None, "initial").progress
    with pytest.raises(SnapshotUnclear, match=r"sources db1, db2 have a snapshot initial: add \?source=NAME"):
        snapshots.find(None, "initial")


def test_where_no_source_takes_snapshots_it_is_said(store: Store) -> None:
    plain = of(Plain(1), store)
    with pytest.raises(SourceRefused, match="takes no snapshots"):
        SnapshotsOfSources({"plain": plain}, []).ask(None, [A])
    with pytest.raises(SnapshotError, match="no source takes snapshots"):
        SnapshotsOfSources({"one": plain, "two": plain}, []).ask(None, [A])


def test_before_a_source_starts_an_unknown_id_may_be_one_of_its_own(store: Store) -> None:
    requests = SnapshotRequests(made_up(), store, lambda: False, threading.Event())
    with pytest.raises(SourceUnavailable, match="snapshot initial may be one of its own"):
        SnapshotsOfSources({"db1": requests}, []).find(None, "initial")


def test_a_runner_tells_its_source_before_every_start_and_shows_snapshots_in_its_stats(
    store: Store, tmp_path: Path
) -> None:
    metrics = Metrics()
    lifecycle = Lifecycle(metrics, start_timeout=5.0)
    part = made_up(initial="initial", gate=tmp_path / "gate")
    told: list[int] = []
    start = part.start

    def note(position: Position | None) -> None:
        told.append(len(part.requests))
        start(position)

    part.start = note  # type: ignore[method-assign]
    runner = SourceRunner(part, [], store, metrics, lifecycle, lambda: None)
    store.put_snapshots("db1", [StoredSnapshot(SnapshotRequest("asked", (B,)))])
    runner.snapshots.load()
    runner.start()
    try:
        assert told == [1]
        for name in ("initial", "asked"):
            runner.snapshots.want(name, Wanted.PAUSE)
        deadline = time.monotonic() + 10
        while show_briefly(runner.stats()["snapshots"]) != "initial:paused:0,asked:paused:0":
            assert time.monotonic() < deadline, runner.stats()
            time.sleep(0.01)
        assert [one["tables_left"] for one in runner.stats()["snapshots"]] == [3, 1]
    finally:
        lifecycle.stopping.set()
        runner.join(time.monotonic() + 10)
    plain = SourceRunner(Scripted(1), [], store, metrics, lifecycle, lambda: None)
    assert "snapshots" not in plain.stats()
