"""The plug-in contract: Source, Handler, Sink, and what they report. The docstrings are normative.

A part is a class that takes (name, options), where options is an instance of its `Options`, validated from
its TOML section. Constructing a part does no I/O. `start` acquires what it needs; `stop` gives it back and may
be called twice, and after a failed start. Each of the two may be called in a thread of its own, so nothing that a part
holds may be tied to a thread. Every part raises only errors of psql_streamer.errors; which of them is tried again and
which stops the pipeline is decided there and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

from psql_streamer.errors import SinkRefused, SourceError, SourceRefused
from psql_streamer.model import Batch, Position, Relation, Stats
from psql_streamer.options import HandlerOptions, SinkOptions, SourceOptions
from psql_streamer.shown_commands import show_command
from psql_streamer.snapshots import KeyForm, PostedKeys, SnapshotProgress, SnapshotRequest, TableRequest, Wanted
from psql_streamer.table_rows import TableReader


class Severity(Enum):
    """How bad a finding is: an ERROR keeps the service from working, a WARNING does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `check` found: what is wrong, and the command or setting that mends it.

    alone: an error beside which the rest can be looked at.
    """

    severity: Severity
    problem: str
    remedy: str
    alone: bool = False

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.problem}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Status:
    """How a part is doing. `reason` is a sentence for the operator, also when all is well."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What is wanted of a source whose changes are captured.

    fits: whether a table (schema, table) is wanted. rows: the most that are. existing: rows that are there, in place of
    changes that come. on_wait: told in words what is waited for.
    """

    fits: Callable[[str, str], bool]
    rows: int
    existing: bool
    on_wait: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KeysRequest:
    """What is asked of the keys that a sink has written.

    source, schema, table: of whose rows. topic: the only one to look at; None for all that the table has. mixed:
    whether events may name several hosts, databases or sources. on_wait: told in words how far it is, now and then.
    """

    source: str
    schema: str
    table: str
    topic: str | None
    mixed: bool
    on_wait: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AliveKeys:
    """Keys whose last event is no delete. form: how they are written. documents: JSON of each, each once; they are read
    from what the sink wrote as they are asked for.
    """

    form: KeyForm
    documents: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class ConsumedOffsets:
    """Offsets of a consumer group that a sink commits with the events that were made of the records in front of them.

    group: librdkafka's metadata of the group's member, as the client that consumed the records gives them: brokers
    refuse the offsets once the member has lost its partitions. offsets: topic, partition, offset of the next record,
    and the metadata of the commit.
    """

    group: bytes
    offsets: Sequence[tuple[str, int, int, str]]


@dataclass(frozen=True, slots=True)
class TransactionWriter:
    """Who writes the transactions of a sink. name: it keeps it over restarts, and no other instance has it.
    cluster: the id of the one whose consumer groups' offsets it can commit with them.
    """

    name: str
    cluster: str


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Topics that a source reads, for sinks that may write them. cluster: the id of their brokers' cluster. names: as
    options have them; one that begins with ^ is a regular expression. ids: of topics that exist, as brokers gave them.
    """

    cluster: str
    names: Sequence[str]
    ids: Mapping[str, str]


Published: TypeAlias = Mapping[str, Sequence[Relation]]
"""Source name -> the tables that it would stream now; a source that cannot say is not in it."""


class Source(ABC):
    """Gives micro-batches in commit order, from a position on, and is told how far they are durable.

    start, read and stop are called one after the other, by several threads: an attempt to start that takes too long is
    left behind. Only when a `read` or a `start` hangs, `stop` comes beside it. `confirm`, `interrupt`, `status`,
    `stats`, `set_snapshots` and `list_snapshots` may be called from any thread.
    """

    Options: ClassVar[type[SourceOptions]]
    also_called: ClassVar[tuple[str, ...]] = ()
    """What somebody may write for its name who means it: products that it reads, in lower-case letters."""
    no_snapshots: ClassVar[str] = "take the rows that are there by other means"
    """What to do where snapshots are refused."""
    no_keys: ClassVar[str] = ""
    """Why it looks up no keys, and what to do, where it takes snapshots; empty where it looks them up (take_keys)."""
    override_key: ClassVar[str] = ""
    """The option that `position_override` comes from; empty where there is none."""
    first_start: ClassVar[str] = "as it does the first time"
    """Where it starts without a position, as messages have it behind `to start`."""
    when_left_alone: ClassVar[str] = ""
    """What goes on at the server while nobody reads, as messages have it behind `and`; empty where it costs nothing."""

    least_interval: float = 0.0
    """Seconds that it lets pass between two batches of a slow stream, also if it is asked for the next one earlier."""
    gives_transaction_metadata: ClassVar[bool] = False
    """Whether it follows `provide_transaction_metadata`. Without, it has no sink that wants them."""

    def __init__(self, name: str, options: SourceOptions) -> None:
        self.name = name
        self.options = options

    @property
    def position_override(self) -> Position | None:
        """Where the operator wants it to start instead of at the stored position; None for no such wish.

        It is followed once: a later start goes on from where the source has got, until another one is wished for.
        """
        return None

    @property
    def gap_remedy(self) -> str:
        """What an operator does about changes that are lost for good; a part of messages."""
        return f"forget the position ({show_command('position', 'forget', self.name)}) to start {self.first_start}"

    @classmethod
    def say_no_snapshots(cls, name: str) -> str:  # noqa: ARG003 - for those whose remedy has a command with it
        """What to do in place of a snapshot of the source of this name; a part of messages."""
        return cls.no_snapshots

    def move_position(self, stored: Position, override: Position) -> Position:  # noqa: ARG002 - where that is all
        """Where an override leads from a stored position of the same stream: with what else the position keeps."""
        return override

    @abstractmethod
    def check(self) -> Iterable[Finding]:
        """Look at every precondition without changing anything; an empty result means that start will work."""

    def check_position(self, position: Position | None) -> Iterable[Finding]:  # noqa: ARG002 - where any will do
        """What would keep `start` from going on there, without starting. Called by `check`, behind it."""
        return ()

    @abstractmethod
    def read_stream_identity(self) -> Mapping[str, str]:
        """What makes a stored position meaningful (cluster, timeline, slot, ...), stored and compared with it.

        May connect. Called before every `start`, which must come to the same stream. A key whose value differs from the
        stored one, or from that of the session before, stops the pipeline, unless `follow_stream` says otherwise.
        """

    def follow_stream(
        self,
        position: Position,
        before: Mapping[str, str],
    ) -> tuple[Position, Mapping[str, str]]:
        """The stream identity with which a position was made, with today's values of what may be another one because
        everything in front of the position is the same today. Asked behind `read_stream_identity`; may connect.

        And the position, or an earlier one: where the streams part, if nothing was given behind that.
        PositionRefused: it says better than a comparison why the source cannot go on there.
        """
        return position, before

    def list_published(self) -> Sequence[Relation] | None:
        """The tables that would be streamed now, in today's shape; None where that cannot be said beforehand.

        May connect. Called before `start`, so that a configuration that fits no table is found at once.
        """
        return None

    def describe_topics_read(self) -> TopicsRead | None:
        """The topics that it reads; None for a source of another kind. Asked behind `read_stream_identity`."""
        return None

    def remember(self, relations: Iterable[Relation]) -> None:
        """The shapes that tables had at the position that `start` will be given.

        Called before the first `start` if there is such a position, and before every other attempt until one works.

        A Batch says which shapes changed since (Batch.schema_changes): these are stored with its position.
        """

    def find_dropped(self, relations: Sequence[Relation]) -> tuple[Position, Sequence[Relation]] | None:  # noqa: ARG002
        """The position up to which changes of tables may still come that no longer exist, and which of these they are.

        None where it cannot be said. May ask the server; called now and then, so that stored shapes do not pile up.
        """
        return None

    @abstractmethod
    def has_reached(self, position: Position, mark: Position) -> bool:
        """Whether everything up to `mark` lies before `position`. Both are its own."""

    def provide_transaction_metadata(self) -> None:
        """Some sink wants Batch.transaction_metadata and Changes.table_seq; called before the first `start`, where
        `gives_transaction_metadata`.
        """

    def serve_transactions(self, writer: TransactionWriter) -> None:
        """Its only sink writes in transactions; called before the first `start`.

        A source that keeps its place in the writer's cluster leaves that to the transactions from then on: it commits
        nothing itself, and `find_consumed_offsets` gives what is to be committed.
        """

    @property
    def keeps_place_in_transactions(self) -> bool:
        """Whether it leaves its place to them: then they say where it goes on, and nothing comes again where its
        position was not stored. Its batches without events are written in transactions as well.

        Asked behind `read_stream_identity` and `serve_transactions`.
        """
        return False

    @abstractmethod
    def start(self, position: Position | None) -> None:
        """Start streaming after `position`, or where the server's own memory says when there is none.

        Raises PositionRefused when the changes after `position` are no longer to be had. May be called again
        after a SourceUnavailable: it then starts over from the position given.
        """

    @abstractmethod
    def read(self, timeout: float) -> Batch | None:
        """The next micro-batch; None when there was nothing for `timeout` seconds.

        After None the caller may assume that nothing received so far is being held back, except changes of a
        transaction whose end has not arrived yet.
        """

    @property
    def is_exhausted(self) -> bool:
        """Whether `read` will give nothing more. A stream has no end; rows that are there, which are captured, have."""
        return False

    @property
    def failure(self) -> SourceError | None:
        """What has ended the session since the last `read`, for sources that notice by themselves.

        Asked while sinks keep the source from being read; it is raised as if `read` had raised it.
        """
        return None

    def confirm(self, position: Position) -> None:
        """Everything up to `position` is durable and remembered; the server may forget it (later is fine).

        Positions never go back. Must not block on the network. SourceUnavailable is as if `read` had raised it: behind
        the start that follows, what is remembered by then is confirmed.
        """

    def find_consumed_offsets(self, position: Position) -> ConsumedOffsets | None:  # noqa: ARG002 - for topics
        """What a sink commits with the events up to a position; None for a source that keeps its place itself.

        From any thread, in front of every attempt to commit: a position that is asked for again was not committed, and
        behind another one everything asked for before was. SourceUnavailable: it cannot be said now, and the attempt
        comes again later. SourceRefused: others have the records by now, and the events must not be written any more.
        """
        return None

    def interrupt(self) -> None:
        """Make whatever waits in this source raise SourceUnavailable soon, saying what it waited for.

        Called at the end of every stop of the service, also behind `stop`, and when a start has taken too long. After
        it, only `stop` is called.
        """

    def review_snapshot(self, request: SnapshotRequest) -> None:  # noqa: ARG002 - for sources that take snapshots
        """Raise SourceRefused when it cannot be taken: no such table, a table without a key. May ask the server.

        From any thread, while the source is started.
        """
        raise SourceRefused(f"source {self.name} takes no snapshots", self.say_no_snapshots(self.name))

    def take_keys(self, name: str, posted: PostedKeys) -> None:  # noqa: ARG002 - for sources that look up keys
        """Keys for a snapshot that looks them up; as many of them are taken as there is room for.

        KeysProgress.next then says which key is to come next. May be called with the same keys again. NoSuchSnapshot,
        SnapshotConflict. From any thread; a snapshot that was asked for takes keys as soon as `set_snapshots` named it.
        """
        raise SourceRefused(f"source {self.name} looks up no keys", self.no_keys or self.say_no_snapshots(self.name))

    def set_snapshots(self, requests: Sequence[SnapshotRequest]) -> None:
        """All that was asked of it, in the order in which it was; called before `start`, and after every change.

        What a request wants is followed within a chunk. How far a snapshot has got is part of positions. One that the
        source began by itself has a request as soon as somebody wants something else of it than to run. One that has
        ended wants CANCEL, which changes nothing, but keeps a source whose position knows nothing of it from beginning.
        """

    def make_capture(self, request: CaptureRequest) -> Source:  # noqa: ARG002 - for sources that can be read twice
        """A source of its own that gives the same changes from its `start(None)` on, and more tables' if need be.

        Nothing of it stays: no position, no slot, no offset; what `confirm` tells it ends with it. Does no I/O. Raises
        SourceRefused where that cannot be.
        """
        raise SourceRefused(
            f"source {self.name}: changes of a source of this type cannot be captured",
            "write the events by hand: docs/capture.md describes the format",
        )

    def list_snapshots(self) -> Sequence[SnapshotProgress]:
        """How far the snapshots are, those that have ended included; in the order in which they began or will.

        Asked at any time, before the start too, by then of what the source knows without its position.
        Once it says of one that it has ended, the position of every batch that is read from then on says so, too.
        """
        return ()

    def make_table_reader(self) -> TableReader | None:
        """Reads tables of its database beside the stream, also before the start; None where that is not possible."""
        return None

    @classmethod
    def make_table_reader_at(cls, url: str) -> TableReader | None:  # noqa: ARG003 - for sources that are databases
        """The same of a database that is none of a source's. SourceRefused for an address that cannot be one."""
        return None

    @abstractmethod
    def stop(self) -> None:
        """Leave the server, telling it the last confirmed position if that is quickly done."""

    def status(self) -> Status:
        """Whether it is connected and receiving; the reason when not."""
        return Status(True, "well")

    def stats(self) -> Stats:
        """Counters for /stats, by names of the source's own. What metrics show of them is in docs/operations.md.

        Names that metrics read; a value of another type is in /stats alone. Numbers: lag_bytes, lag_records,
        keys_in_doubt, cascaded_tables, tombstones, tombstone_deletes, unknown_tombstones, headers_left_out,
        dead_lettered,
        registry_lookups, registry_failures, rebalances, reconnects, rows, polls, unsettled_rows, last_row_age_seconds,
        server_lsn, received_lsn, stored_lsn, confirmed_lsn. By names: cursors (table -> the last key), partitions
        (`topic[0]` -> records behind). The service has stored_position, batches_in_flight and snapshots.
        """
        return {}

    def set_debug(self, on: bool) -> None:
        """Switch debug messages while running. Sources with helpers of their own pass it on."""


class Handler(ABC):
    """Turns a batch into a batch: coercion, enrichment, filtering. Has a thread of its own.

    Every sink that names a handler has an instance of its own.

    sink: the sink that it works for, and sources: those of the sink; see `serve`.
    batches_at_once: how many batches that wait may be merged into one before `handle` gets them; more than one where
    a batch costs much, whatever its size.
    """

    Options: ClassVar[type[HandlerOptions]]
    batches_at_once: int = 1

    def __init__(self, name: str, options: HandlerOptions) -> None:
        self.name = name
        self.options = options
        self.sink: str | None = None
        self.sources: Sequence[str] = ()

    def serve(self, sink: str, sources: Sequence[str]) -> None:
        """Told once, before anything else is called, for which sink it works, and of which sources its batches are.

        It is not called for a handler that somebody uses by itself, as a test may.
        """
        self.sink = sink
        self.sources = sources

    @property
    def same_for_all_sinks(self) -> bool:
        """Whether it does the same for every sink that has it: then one instance is reviewed for all of them."""
        return True

    @property
    def most_rows(self) -> int | None:
        """How many rows the next batch should have at most, for a handler that makes many of one; None: any number.

        Asked before each `handle`. Parts of a change are not torn apart.
        """
        return None

    @property
    def is_stateless(self) -> bool:
        """Whether what it makes of a batch depends on the batch and its options alone, and not on what came before.

        `try_rule` goes on with one that it has started only then.
        """
        return False

    @property
    def shared_engine(self) -> Hashable | None:
        """What it holds that handlers of the process share, by what it was started with; None: nothing.

        `try_rule` keeps one that runs until the next one with the same engine has started.
        """
        return None

    @abstractmethod
    def check(self) -> Iterable[Finding]:
        """See Source.check."""

    def review(self, published: Published) -> Iterable[Finding]:  # noqa: ARG002 - for handlers that have rules
        """What of the options does not fit the tables; an ERROR keeps the service from starting.

        published: by the sources of all sinks that have the handler. Called when the service starts, behind `start`,
        and by `check` without it; `stop` follows. Raises what `start` raises.
        """
        return ()

    def attach(self, sources: Mapping[str, Source], folder: Path | None) -> None:
        """The sources, by name, whose tables it may read. Called before anything else, and once.

        folder: for what it keeps beside positions, of this instance alone; it may not exist. None: keep nothing.
        """

    def begin_stream(self, source: str, position: Position | None) -> None:
        """A source begins to stream behind a position, for the first time since the start of the service.

        From any thread, before the first batch of the source; again for every attempt until the source has started.
        """

    def note_durable(self, source: str, position: Position) -> None:
        """Everything up to a position is durable in every sink. Called before it is stored, from any thread.

        Must not take long. HandlerUnavailable: the position is not stored yet, and this comes again, with that one or a
        later one.
        """

    @abstractmethod
    def start(self) -> None:
        """Acquire the engine. May take seconds; is called before any batch is read.

        Comes again, without a stop in between, behind a start that failed and behind a HandlerUnavailable of `handle`.
        """

    def start_cold(self) -> None:
        """As `start`, for a few batches: without what pays later."""
        self.start()

    @abstractmethod
    def handle(self, batch: Batch) -> Batch:
        """The transformed batch, with the same position, in the same order.

        Rows may be dropped and columns changed; everything else that Changes says of a row that stays must not change:
        relation, batch_order, op, seq, tx, place, table_seq, uuid and record_time. replace(changes, after=...) and
        Changes.take do that. An update whose new row is dropped may stay as the delete of its old key. A row may become
        several: they stand together, have the same of these, and Changes.part. What an image lacks (Image.absent) is
        still lacking, unless the handler gives it. Image.addresses says where events go, if not where the sink's
        options say; what a handler before said of it stays, unless this one says something else. What cannot be
        transformed goes to Batch.rejections, behind what handlers before put there, and is not among the changes; then
        HandlerOptions.puts_rows_aside says so. Everything else of the batch stays: truncates, messages, shapes,
        statements, transactions, received_at and Batch.continues. replace(batch, changes=...) does that; whoever makes
        rows larger says so in nbytes. The batch that is given is not altered: others have it, too.
        """

    def interrupt(self) -> None:
        """Called from another thread at every stop of the service, when batches are done or the deadline has passed: a
        `handle` that waits raises HandlerUnavailable soon. One that returns all the same has handled its batch.

        May come before `start` and behind `stop`.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release the engine. Also from another thread than `handle`'s, when that one hangs."""

    def status(self) -> Status:
        """Whether the engine is there and the last batch went through; the reason when not."""
        return Status(True, "well")

    def stats(self) -> Stats:
        """Counters for /stats, by names of the handler's own.

        Names that metrics read; a value of another type is in /stats alone. Numbers: rows, passed_unknown, unaddressed,
        fields_left_out, nulled, dead_lettered, engine_restarts, and executors, the number of now. By names: lookups
        (lookup -> its rows, bytes, age_seconds, loads, failed_loads and changes). Numbers of several instances are
        added up.
        """
        return {}


@dataclass(frozen=True, slots=True)
class Transaction:
    """Batches that a sink writes all or not at all, in their order.

    notes: of each of their sources what the sink keeps beside the events, in place of what it kept before: a JSON
    object. Those of other sources stay.
    consumed: what is committed with the events; asked in front of every attempt. Raises as
    Source.find_consumed_offsets.
    """

    batches: Sequence[Batch]
    notes: Mapping[str, bytes]
    consumed: Callable[[], Sequence[ConsumedOffsets]] = tuple


class SinkMemory(Protocol):
    """What a sink remembers over restarts: texts by name, beside the positions. From any thread, while it is started.

    It is for what is told to the operator. How far a sink has come is remembered by the service.
    """

    def read(self) -> Mapping[str, str]:
        """All of them."""

    def put(self, texts: Mapping[str, str]) -> None:
        """Remember more, or others; on return they are on disk, which may take a while: not for a thread that writes.

        An empty text is forgotten. Raises StoreError.
        """


class Sink(ABC):
    """Makes batches durable.

    start, write, begin_write, write_transaction and stop are called one after the other, by several threads. Only
    when one of them hangs, `stop` comes beside it. `find_note`, `find_writer`, `interrupt`, `status` and `stats` may be
    called from any thread, at any time that their docstrings do not leave out.
    """

    Options: ClassVar[type[SinkOptions]]
    also_called: ClassVar[tuple[str, ...]] = ()
    """What somebody may write for its name who means it: products that it writes to, in lower-case letters."""

    def __init__(self, name: str, options: SinkOptions) -> None:
        self.name = name
        self.options = options

    @property
    def wants_transaction_metadata(self) -> bool:
        """Whether it reads what Source.provide_transaction_metadata is about."""
        return self.options.wants_transaction_metadata

    def attach(self, memory: SinkMemory) -> None:
        """Where it may remember something. Called before `start`, and once; not for a sink that is only checked."""

    def attach_next(self, begin_next: Callable[[], bool]) -> None:
        """What begins the next write, for a sink that has something to do while a server acknowledges this one.

        Called before `start`, and once; not for a sink that is only checked, or that is_transactional. `begin_next`
        calls `begin_write` if a batch waits and no next write is begun yet, and tells whether one is begun. It is for
        what `begin_write` returned, when all that is left to do is to wait: where it is False, it may be called again.
        """

    @abstractmethod
    def check(self) -> Iterable[Finding]:
        """See Source.check."""

    def review(self, published: Published) -> Iterable[Finding]:  # noqa: ARG002 - for sinks whose options name tables
        """What of the options does not fit the tables, as Handler.review. Asks no server."""
        return ()

    @abstractmethod
    def start(self) -> None:
        """Acquire what writing needs. Raises SinkUnavailable when it may work later: then it comes again, without a
        stop in between.
        """

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Return when every event of the batch is durable (or dead-lettered), and only then.

        A batch may be a piece of one (Batch.continues): its position is reached with the last piece, and is for
        messages. The service remembers positions; a sink that has to keep them takes transactions, and their notes.
        SinkUnavailable: the batch does not count yet, and comes again later: the same object, before any other one.
        What of it is durable need not be written again, as long as order per key is kept. `interrupt` makes a waiting
        write raise SinkUnavailable soon.
        """

    @property
    def rows_at_once(self) -> int:
        """How many changes it likes to write at once, now: `begin_write` is offered batches that wait, until they have
        about as many. What it takes may change the number. From any thread.
        """
        return 1

    def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
        """What writes the first batch, and those behind it that the sink takes, in their order, as `write` does one.

        batches: those that wait at the time when they are taken, one at least. The service holds no rows of what was
        taken: they are freed as soon as the sink needs them no more. Reaches no server.
        What it returns may take further batches, and should: for these the service may wait a moment, and the source
        makes the next one when `begin_write` is over.
        SinkUnavailable from it: the same is called again, before any other write. When it returns, all that was taken
        is durable.
        Within `begin_next` (see attach_next) it may take batches, too. What it returns is called when the write that
        waits is over, and raises what went wrong.
        """
        return partial(self.write, next(batches))

    @property
    def is_transactional(self) -> bool:
        """Whether batches are given to write_transaction, and not to write."""
        return False

    def write_transaction(self, transaction: Transaction) -> None:  # noqa: ARG002 - for transactional sinks
        """As `write` for several batches. Readers see all of them and the notes, or nothing.

        SinkUnavailable: the same object comes again, before any other one. Whether it was written after all, is found
        out by then.
        """
        raise SinkRefused(f"sink {self.name} writes no transactions")

    def find_note(self, source: str) -> bytes | None:  # noqa: ARG002 - for transactional sinks
        """What the last transaction that was written noted of a source.

        Called behind `start`, from any thread: a source may start while what another one gave is written.
        """
        return None

    def find_writer(self) -> TransactionWriter | None:
        """Who writes its transactions; None where they commit no offsets. May ask the server.

        Called behind `start`, before the first batch of a source, and as `find_note` beside writes for others.
        """
        return None

    def find_circle(self, read: TopicsRead) -> str:  # noqa: ARG002 - for sinks that write topics
        """The name of a topic that it may write, among those that its source reads; empty where there is none.

        May ask the server, also without `start`.
        """
        return ""

    @abstractmethod
    def interrupt(self) -> None:
        """Called from another thread at every stop of the service, when batches are done or the deadline has passed.

        A `write` that has not written everything then raises SinkUnavailable: one that returns counts. May come before
        `start` and behind `stop`.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release everything. Events that were not confirmed are abandoned, not flushed."""

    @abstractmethod
    def status(self) -> Status:
        """Whether the last attempt worked; the reason when not."""

    @abstractmethod
    def stats(self) -> Stats:
        """Counters for /stats, by names of the sink's own.

        Names that metrics read; a value of another type is in /stats alone. Numbers: events, bytes, batches,
        dead_lettered, excluded, uncompressed, transactions, transactions_written_again, request_bytes,
        topics_made_again. Numbers, or numbers by names: skipped (table -> changes), nulled (column -> values),
        left_behind (column -> rows). The service has queue_bytes and queue_limit_bytes.
        """

    def set_debug(self, on: bool) -> None:
        """Switch debug messages while running."""

    def find_alive_keys(self, request: KeysRequest) -> AliveKeys:  # noqa: ARG002 - for sinks whose events can be read
        """The keys of a table's rows that the sink has written and not deleted; without `start`, and beside a service
        that runs. SinkRefused where they cannot be told; SinkUnavailable, also while they are iterated over.
        """
        raise SinkRefused(f"sink {self.name}: events of a sink of this type are not read", "give the keys as a file")


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot of a source. requested: what was asked for, with its conditions; empty for all tables.

    wanted: what the operator wants of it; it is followed within a chunk.
    """

    source: str
    progress: SnapshotProgress
    requested: Sequence[TableRequest]
    wanted: Wanted


class Snapshots(Protocol):
    """The snapshots of all sources. Callable from any thread.

    source: a name; None where the others leave no choice. SnapshotError and its classes say what cannot be done;
    SourceUnavailable is for the time before the start, and for a server that is away.
    """

    def list_known(self) -> Mapping[str, Sequence[KnownSnapshot]]:
        """By source, in the order in which they began or will; sources that take none are not in it."""

    def find(self, source: str | None, name: str) -> KnownSnapshot:
        """The snapshot of this id."""

    def ask(self, source: str | None, tables: Sequence[TableRequest], keys: KeyForm | None = None) -> KnownSnapshot:
        """Ask for a snapshot, of all tables if none is named. It is on disk on return, and begins by itself.

        keys: for one that looks up keys of its only table, how they are written. SourceRefused when the source cannot
        take it.
        """

    def post_keys(self, source: str | None, name: str, posted: PostedKeys) -> KnownSnapshot:
        """See Source.take_keys. The snapshot as it is then."""

    def want(self, source: str | None, name: str, wanted: Wanted) -> KnownSnapshot:
        """Let it run, pause or end. It is on disk on return, and followed within a chunk."""


class Service(Protocol):
    """What the HTTP API sees of the running pipeline. Callable from any thread."""

    snapshots: Snapshots

    def status(self) -> Mapping[str, Status]:
        """A Status by part: `source.db1`, `handler.spark`, `sink.kafka1`."""

    def stats(self) -> Mapping[str, Stats]:
        """Counters of every part, named as in `status`; of a handler that several sinks have over all of them."""

    def set_debug(self, on: bool) -> None:
        """Switch debug messages of all parts."""
