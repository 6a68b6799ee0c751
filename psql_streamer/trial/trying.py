"""Changes through the handlers of a sink, and into its format: what would be sent, and nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psql_streamer.cells import CellTable, convert_to_cells
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError, HandlerError, Outcome, choose_outcome
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.formats import format_class
from psql_streamer.events.options import EventOptions
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.events.source_fields import choose_fields
from psql_streamer.interfaces import Handler
from psql_streamer.model import Batch, Changes, Rejection
from psql_streamer.nearest import suggest_nearest
from psql_streamer.options import SinkOptions
from psql_streamer.pipeline.coalescing import cut_off
from psql_streamer.trial.event_lines import Line, render_changes

_TRIAL_ATTEMPTS = 6
"""Of a batch behind which an engine ends: a row that ends it twice is looked for and named."""

_ANY_TOPIC = "events"


@dataclass(frozen=True, slots=True)
class Event:
    """A record as it would be sent. topic: empty where the sink has none. key, value: bytes; None for no value."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A change that a rule put aside. topic: the sink's for such records, empty for none. events: without the rule."""

    topic: str
    reason: str
    rule: str
    column: str | None
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """What becomes of one change. line: as a file of events has it. place: how messages call it.

    without_topic: records that the rule left and the sink has no topic for.
    """

    table: str
    line: Line
    place: str
    events: tuple[Event, ...]
    dead_letters: tuple[DeadLetter, ...]
    without_topic: int

    @property
    def outcome(self) -> str:
        """sent, dropped (by the rule), dead-letter or no-topic."""
        if self.dead_letters:
            return "dead-letter"
        return "sent" if self.events else "no-topic" if self.without_topic else "dropped"


class Trial:
    """A sink's handlers, started, and what makes its records. For a `with`."""

    def __init__(self, config: Config, sink: str | None) -> None:
        """sink: its name; None for the only one. ConfigError when it is not clear which. Does no I/O."""
        name = _choose(config, sink)
        self.handlers: Sequence[Handler] = config.build_handlers(name)
        sources = {one: source.build() for one, source in config.sources.items()}
        for handler in self.handlers:
            handler.attach(sources, None)
        self._options = config.sinks[name].options

    def list_changelogs(self) -> Iterator[tuple[str, str]]:
        """Lookups that follow the changes of a table, and its name: where they begin is not in the changes."""
        for handler in self.handlers:
            yield from handler.options.list_followed_tables()

    def start(self) -> None:
        """Start the handlers: an engine takes seconds."""
        for handler in self.handlers:
            handler.start_cold()

    def stop(self) -> None:
        """Stop them."""
        for handler in self.handlers:
            handler.stop()

    def run(self, batches: Iterable[Batch], fits: Callable[[str, str], bool]) -> Iterator[Tried]:
        """What becomes of the changes of some tables, in their order. HandlerError when a rule stops the service.

        fits: whether a table (schema, table) is among them; the others go through the handlers all the same.
        """
        encoder = _make_encoder(self._options)
        try:
            for batch in batches:
                yield from _pair_changes(batch, _Made(self._handle(batch)), encoder, self._options, fits)
        finally:
            encoder.stop()

    def _handle(self, batch: Batch) -> Sequence[Batch]:
        """What the handlers make of it, in as many pieces as they take it in."""
        pieces = [batch]
        for handler in self.handlers:
            pieces = [made for piece in pieces for made in _run_handler(handler, piece)]
        return pieces


class _Made:
    """What handlers made of a batch. Rows are found by their place in it, which a handler does not change."""

    def __init__(self, pieces: Sequence[Batch]) -> None:
        self._cells = [(piece, convert_to_cells(piece.changes)) for piece in pieces]
        self._of_order: dict[int, list[int]] = {}
        for at, (piece, cells) in enumerate(self._cells):
            orders = [cells.batch_order, *(rejection.changes.batch_order for rejection in piece.rejections)]
            for order in np.unique(np.concatenate(orders)).tolist():
                self._of_order.setdefault(order, []).append(at)

    def find(self, order: int) -> Iterator[tuple[Batch, CellTable]]:
        """The pieces in which something is left of a change or put aside, and their changes."""
        return (self._cells[at] for at in self._of_order.get(order, ()))


def _choose(config: Config, sink: str | None) -> str:
    if sink is None:
        if len(config.sinks) != 1:
            raise ConfigError([f"{config.name}: which sink: say it with --sink: {', '.join(config.sinks)}"])
        return next(iter(config.sinks))
    if sink not in config.sinks:
        raise ConfigError([f'{config.name}: there is no sink "{sink}"{suggest_nearest(sink, config.sinks)}'])
    return sink


def _run_handler(handler: Handler, batch: Batch) -> Iterator[Batch]:
    """As the service does it: a handler gets as many rows as it wants, and is started again before what may pass is
    tried again.
    """
    rest: Batch | None = batch
    attempt = 1
    while rest is not None:
        try:
            if attempt > 1:
                handler.start_cold()
            head, behind = cut_off(rest, handler.most_rows)
            made = handler.handle(head)
        except HandlerError as error:
            if attempt == _TRIAL_ATTEMPTS or choose_outcome(error) is not Outcome.RETRY:
                raise
            attempt += 1
        else:
            yield made
            rest, attempt = behind, 1


def _make_encoder(options: SinkOptions) -> Encoder:
    """The sink's own, as people read its records; of a sink that writes no events, those of the format that is the
    default.
    """
    if isinstance(options, EventOptions):
        return options.make_encoder().make_readable()
    default = format_class("event")
    return Encoder(default(default.Options()), Router({}, "", _ANY_TOPIC, ""), {})


def _pair_changes(
    given: Batch, made: _Made, encoder: Encoder, options: SinkOptions, fits: Callable[[str, str], bool]
) -> Iterator[Tried]:
    """What was given, and what became of it."""
    wanted = [one for one in given.changes if fits(one.relation.schema, one.relation.table)]
    lines = sorted(((order, one, line) for one in wanted for order, line in render_changes(one, given)), key=_order)
    for order, changes, line in lines:
        pieces = list(made.find(order))
        records = [
            _encode(encoder, piece, cells.take(np.flatnonzero(cells.batch_order == order))) for piece, cells in pieces
        ]
        yield Tried(
            str(changes.relation),
            line,
            f"({choose_fields(given.source).show_commit(line['commit'])}, {line['seq']})",
            tuple(event for one in records for event in _make_events(one, options)),
            tuple(letter for piece, _ in pieces for letter in _make_dead_letters(order, piece, encoder, options)),
            sum(sum(one.skipped.values()) + one.excluded for one in records),
        )


def _order(found: tuple[int, Changes, Line]) -> int:
    return found[0]


def _encode(encoder: Encoder, batch: Batch, changes: CellTable | tuple[Changes, ...]) -> Records:
    return encoder.encode(batch.with_only(changes))


def _make_dead_letters(order: int, made: Batch, encoder: Encoder, options: SinkOptions) -> Iterator[DeadLetter]:
    topic = options.topic_of_rejected_rows
    for rejection in made.rejections:
        rows = np.flatnonzero(rejection.changes.batch_order == order)
        if len(rows):
            records = _encode(encoder, made, (rejection.changes.take(rows),))
            yield _make_dead_letter(rejection, topic, tuple(_make_events(records, options)))


def _make_dead_letter(rejection: Rejection, topic: str, events: tuple[Event, ...]) -> DeadLetter:
    return DeadLetter(topic, rejection.reason, rejection.rule, rejection.column, events)


def _make_events(records: Records, options: SinkOptions) -> Iterator[Event]:
    has_topics = isinstance(options, EventOptions)
    for at in range(len(records)):
        headers: dict[str, Any] = {name: column[at].as_py() for name, column in records.headers.items()}
        yield Event(
            records.look_up_topic(at) if has_topics else "",
            records.keys[at].as_py(),
            records.values[at].as_py(),
            {name: value for name, value in headers.items() if value is not None},
        )
