"""The types that a part's options are made of; every part describes its TOML section with a PartOptions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from psql_streamer.redaction import HIDDEN, hide, is_secret

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 596 * 3600.0
_MOST_SIZE_BYTES = 1 << 62
UNKNOWN_NAME = "unknown_name"
"""The type of a validator's error whose text depends on the value: it is not shown where that holds a secret."""

_UNIT_BYTES = {"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def _parse_duration(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError('is not a duration such as "100ms", "1s" or "5m"')
    sign, text = (-1.0, value[1:]) if value.startswith("-") else (1.0, value.removeprefix("+"))
    if text == "0":
        return 0.0
    terms = _DURATION.findall(text)
    if not terms or "".join(number + unit for number, unit in terms) != text:
        raise ValueError('is not a duration such as "100ms", "1s" or "5m"')
    seconds = sign * sum(float(number) * _UNIT_SECONDS[unit] for number, unit in terms)
    if seconds > _LONGEST_SECONDS:
        raise ValueError("is longer than 596h, the longest that libpq and librdkafka can count in milliseconds")
    return seconds


def _parse_byte_size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+)\s*([kmgt]?i?b)?", value.strip().lower())
    if not found:
        raise ValueError('is not a size such as 1048576, "64MB" or "1GB"')
    return int(found[1]) * _UNIT_BYTES[(found[2] or "").replace("i", "")]


Duration = Annotated[float, BeforeValidator(_parse_duration)]
"""Seconds, written as Go writes durations: "100ms", "1m30s"."""


def refuse_longer_than(longest: str, for_whom: str) -> AfterValidator:
    """The upper bound of a duration. for_whom: the library that sets it."""
    seconds = _parse_duration(longest)

    def validator(value: float) -> float:
        if value > seconds:
            raise ValueError(f"is longer than {longest}, the longest that {for_whom} takes")
        return value

    return AfterValidator(validator)


def refuse_shorter_than(shortest: str, why: str) -> AfterValidator:
    """The lower bound of a duration."""
    seconds = _parse_duration(shortest)

    def validator(value: float) -> float:
        if value < seconds:
            raise ValueError(f"is shorter than {shortest}: {why}")
        return value

    return AfterValidator(validator)


PositiveDuration = Annotated[Duration, Field(gt=0)]

ByteSize = Annotated[int, BeforeValidator(_parse_byte_size), Field(ge=0, le=_MOST_SIZE_BYTES)]
"""Bytes: a number, or "64MB" with PostgreSQL's 1024-based units."""

PositiveByteSize = Annotated[int, BeforeValidator(_parse_byte_size), Field(gt=0, le=_MOST_SIZE_BYTES)]


def require_form(pattern: str, form: str) -> AfterValidator:
    """A text that a regular expression describes. form: the same in words, behind "is"; nothing of the value."""

    def validator(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"is {form}")
        return value

    return AfterValidator(validator)


class PartOptions(BaseModel):
    """The base of every section: camelCase in TOML, snake_case accepted, unknown keys refused, frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    of_go_service: ClassVar[Mapping[str, Any]] = {}
    """Options by their names in TOML that a file of the Go service, which has no word for them, means."""

    @classmethod
    def choose_options(cls, table: Mapping[str, Any]) -> type[Self]:  # noqa: ARG003 - for sections that are not all alike
        """The options that this table is validated as: a subclass where what may stand in it depends on its values."""
        return cls

    def list_resources(self) -> Iterable[str]:
        """What this part must have for itself, in words: `replication slot "shop" on localhost:5432`.

        A configuration in which two parts name the same is refused. Asks no server, shows no secret.
        """
        return ()

    def find_shared(self, other: PartOptions) -> str:  # noqa: ARG002 - for parts whose resources overlap
        """What this part must have for itself and another of its kind would have a part of, in words as
        `list_resources` has them, where their words differ; empty: nothing.
        """
        return ""

    def list_warnings(self) -> Iterable[str]:
        """What the section asks for and may be sorry for, a sentence each; logged at the start and by `validate`."""
        return ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What is under the key of a secret is hidden, here and in tables."""
        for name, value in super().__repr_args__():
            yield name, HIDDEN if name and is_secret(name) else hide(value)


class SourceOptions(PartOptions):
    """What every source's section may hold.

    start_retry_interval, send_retry_interval: first pauses, with backoff and jitter after that, before the
    source is started again and before a batch that a sink did not take is sent to it again.
    """

    type: str
    start_retry_interval: PositiveDuration = 5.0
    send_retry_interval: PositiveDuration = 0.1
    verbose: bool = False
    debug: bool = False

    def list_reads(self) -> Iterable[str]:
        """What it reads that a sink may write, as SinkOptions.may_write takes it."""
        return ()


class HandlerOptions(PartOptions):
    """What the pipeline asks of every handler's section."""

    @property
    def puts_rows_aside(self) -> bool:
        """Whether batches may come with Batch.rejections, for which a sink needs a place."""
        return False

    def puts_rows_aside_of(self, sink: str) -> bool:  # noqa: ARG002 - for handlers that do not do the same for all sinks
        """The same of the batches for this sink."""
        return self.puts_rows_aside

    def list_followed_tables(self) -> Iterable[tuple[str, str]]:
        """What the handler keeps of tables by their changes: its name for it, and the table. `try` says that where such
        a copy begins is not in the changes that it is given.
        """
        return ()

    def list_named_sinks(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """The sinks that options name, and where: ("tables", "orders", 0, "sinks"). Each must have the handler."""
        return ()

    def list_named_sources(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """The sources that options name, and where: ("lookups", "customers", "source")."""
        return ()


class SinkOptions(PartOptions):
    """What every sink's section may hold.

    handlers: what batches pass on their way to the sink, in order; none: they come as the source gave them.
    queue_bytes: memory that batches may take while they wait for the sink (for each of its handlers as much again);
    when it is full, reading stops.
    """

    type: str
    sources: tuple[str, ...] = Field(min_length=1)
    handlers: tuple[str, ...] = ()
    queue_bytes: PositiveByteSize = 32 << 20
    verbose: bool = False
    debug: bool = False

    @property
    def wants_transaction_metadata(self) -> bool:
        """Whether the sink reads what Source.provide_transaction_metadata is about."""
        return False

    @property
    def wish_for_transaction_metadata(self) -> str:
        """What of the section says so, as messages have it: a key, or a key and its value. Empty where nothing does."""
        return ""

    @property
    def is_exactly_once(self) -> bool:
        """Whether its transactions say how far they bring its sources, which then have no other sink."""
        return False

    def may_write(self, place: str) -> bool:  # noqa: ARG002 - for sinks that write what a source reads
        """Whether events may go to a place that some source reads (`localhost:9092/orders`): they would never end."""
        return False

    @property
    def takes_rejected_rows(self) -> bool:
        """Whether `write` looks at Batch.rejections: it gives the rows a place or counts them, and its stats count them
        in dead_lettered. Where it does not, no handler of the sink may put rows aside.
        """
        return False

    @property
    def key_of_rejected_rows(self) -> str | None:
        """The key that must be set before a sink that takes rows which handlers put aside has a place for them; None
        when it has one, or counts them and nothing else.
        """
        return None

    @property
    def topic_of_rejected_rows(self) -> str:
        """Where rows go that handlers put aside, as `try` shows it; empty where they are counted and nothing else."""
        return ""
