"""What a sink's section says of events: their format, keys and topics, for every sink that writes events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from psql_streamer.entry_points import NameRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.excluded_columns import ExcludedColumns
from psql_streamer.events.format import Format, FormatOptions
from psql_streamer.events.formats import format_class
from psql_streamer.events.key_columns import ANY_TABLE, KeyColumns
from psql_streamer.events.routing import Route, Router, SourceTopic
from psql_streamer.events.timestamps import Timestamps
from psql_streamer.events.unchanged import ANY_COLUMN, MARKER, Treatment, Unchanged
from psql_streamer.options import UNKNOWN_NAME, PartOptions, SinkOptions
from psql_streamer.table_patterns import is_pattern

_Item = TypeVar("_Item")


def require_items(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    """The items; ValueError when there are none."""
    if not items:
        raise ValueError("is empty; name at least one")
    return items


def _require_known_format(name: str) -> str:
    try:
        format_class(name)
    except NameRefused as error:
        raise PydanticCustomError(UNKNOWN_NAME, "{reason}", {"reason": str(error)}) from error
    return name


def _list_routes(value: Any) -> list[Any]:
    """A topic, a table, or a list of these, as a list of tables."""
    listed = value if isinstance(value, list | tuple) else [value]
    return [item if isinstance(item, Mapping | TopicRoute) else {"topic": item} for item in listed]


def _expand_rules(value: Any) -> Any:
    return {ANY_COLUMN: value} if isinstance(value, str) else value


def _fill_all() -> Mapping[str, Treatment]:
    return {ANY_COLUMN: "fill"}


Columns = Annotated[tuple[str, ...], AfterValidator(require_items)]
Tables = tuple[Annotated[str, Field(min_length=1)], ...]


class TopicRoute(PartOptions):
    """One of a table's topics. key: the columns that key its records there, in place of those of the section."""

    topic: str
    key: Columns | None = None


Routes = Annotated[tuple[TopicRoute, ...], BeforeValidator(_list_routes), AfterValidator(require_items)]
UnchangedRules = Annotated[Mapping[str, Treatment], BeforeValidator(_expand_rules)]


class EventOptions(SinkOptions):
    """The section of a sink that writes events. `make_encoder` gives what makes records of batches.

    docs/events.md and psql-streamer.toml say what each key does. format_options: of the format's own type.
    """

    table_topic_mapping: Mapping[str, Routes] = Field(default_factory=dict)
    topic_prefix: str = ""
    topic_fallback: str = ""
    exclude_tables: Tables = ()
    exclude_columns: Tables = ()
    message_topic: str = ""
    transaction_topic: str = ""
    schema_topic: str = ""

    format: Annotated[str, AfterValidator(_require_known_format)] = "event"
    format_options: FormatOptions = Field(default_factory=dict, validate_default=True)
    debezium_schemas: bool = False
    debezium_transactions: bool = False
    key: Mapping[str, tuple[str, ...]] | tuple[str, ...] = Field(default_factory=dict)
    unchanged: UnchangedRules = Field(default_factory=_fill_all)
    unchanged_marker: str = Field(default=MARKER, min_length=1)
    headers: bool = False

    @classmethod
    def choose_options(cls, table: Mapping[str, Any]) -> type[Self]:
        """These options, with the type of the format's own."""
        name = table.get("format", cls.model_fields["format"].default)
        try:
            options = format_class(name).Options if isinstance(name, str) else FormatOptions
        except NameRefused:
            return cls
        return cls if options is FormatOptions else _add_format_options(cls, options)

    def make_encoder(self, timestamps: Timestamps = "write") -> Encoder:
        """The encoder that this section describes. timestamps: which ones records get, if the sink writes them. Does no
        I/O.
        """
        return Encoder(
            self.make_format(),
            self.make_router(),
            self.key_columns,
            self.headers,
            self.make_unchanged_policy(),
            self.transactions_to,
            self.schema_topic,
            timestamps,
            ExcludedColumns(self.exclude_columns),
        )

    def make_format(self) -> Format:
        """The format that this section describes. Does no I/O."""
        return format_class(self.format)(self.format_options, **self._collect_section_arguments())

    @property
    def wants_transaction_metadata(self) -> bool:
        """See SinkOptions.wants_transaction_metadata."""
        return bool(self.transactions_to)

    @property
    def wish_for_transaction_metadata(self) -> str:
        """See SinkOptions.wish_for_transaction_metadata."""
        if not self._tells_transactions():
            return ""
        return "debeziumTransactions" if self.debezium_transactions else f'format = "{self.format}"'

    @property
    def transactions_to(self) -> str:
        """The topic of the records that say where transactions begin and end; "" for none."""
        return self.transaction_topic if self._tells_transactions() else ""

    @property
    def key_columns(self) -> Mapping[str, tuple[str, ...]]:
        """Key columns by table, as KeyColumns takes them."""
        if isinstance(self.key, Mapping):
            return self.key
        return {ANY_TABLE: self.key} if self.key else {}

    def make_router(self) -> Router:
        """The topics that this section describes. ValueError for a rule that cannot work."""
        mapping = {
            table: [Route(route.topic, route.key) for route in routes]
            for table, routes in self.table_topic_mapping.items()
        }
        return Router(mapping, self.topic_prefix, self.topic_fallback, self.message_topic, self.exclude_tables)

    def list_mapped_topics(self) -> Iterator[str]:
        """Every topic of tableTopicMapping, placeholders and all."""
        return (route.topic for routes in self.table_topic_mapping.values() for route in routes)

    def make_unchanged_policy(self) -> Unchanged:
        """What becomes of TOASTed values that an update left alone."""
        return Unchanged(self.unchanged, self.unchanged_marker)

    def list_warnings(self) -> Iterator[str]:
        """See PartOptions.list_warnings."""
        if self.transaction_topic and not self.transactions_to:
            yield "transactionTopic has no effect without debeziumTransactions = true"
        if "unchanged_marker" in self.model_fields_set and "marker" not in self.unchanged.values():
            yield 'unchangedMarker has no effect: no column has unchanged = "marker"'
        yield from (f"formatOptions: {text}" for text in self.format_options.list_warnings())
        yield from (
            f"formatOptions: {text}" for text in self.format_options.list_topic_warnings(self._list_shared_topics())
        )

    def list_resources(self) -> Iterable[str]:
        """See PartOptions.list_resources: those of the format."""
        return self.format_options.list_resources()

    def _list_shared_topics(self) -> Sequence[str]:
        """Topics with a name of their own that events of several tables may go to."""
        plain: Counter[str] = Counter()
        for table, routes in self.table_topic_mapping.items():
            for route in routes:
                if "{" not in route.topic:
                    plain[route.topic] += 2 if is_pattern(table) else 1
        shared = [topic for topic, tables in plain.items() if tables > 1]
        return [*shared, self.topic_fallback] if self.topic_fallback else shared

    def _tells_transactions(self) -> bool:
        return format_class(self.format).tells_transactions(self.format_options, **self._collect_section_arguments())

    def _collect_section_arguments(self) -> dict[str, Any]:
        """The constructor's arguments that stand in this section."""
        return {name: getattr(self, key) for key, name in format_class(self.format).section_keys.items()}

    @field_validator("format_options", mode="before")
    @classmethod
    def _validate_format_options(cls, value: Any, info: ValidationInfo) -> Any:
        """A table, as the format's own type; nothing is said of it when the format is not known."""
        if not isinstance(value, Mapping):
            return value
        return format_class(info.data["format"]).Options.model_validate(value) if "format" in info.data else {}

    @model_validator(mode="after")
    def _section_keys_have_a_format(self) -> Self:
        taken = format_class(self.format).section_keys
        for key in ("debezium_schemas", "debezium_transactions"):
            if getattr(self, key) and key not in taken:
                written = to_camel(key)
                raise ValueError(f'{written} has no meaning for format = "{self.format}": it belongs to "debezium"')
        return self

    @model_validator(mode="after")
    def _transactions_have_a_topic(self) -> Self:
        if not self.transaction_topic and self._tells_transactions():
            wish = self.wish_for_transaction_metadata
            raise ValueError(f"{wish} needs transactionTopic, where transactions begin and end")
        if self.transaction_topic:
            SourceTopic("transactionTopic", self.transaction_topic)
        if self.schema_topic:
            SourceTopic("schemaTopic", self.schema_topic)
        return self

    @model_validator(mode="after")
    def _marker_has_a_format(self) -> Self:
        if "unchanged_marker" in self.model_fields_set and format_class(self.format).marks:
            whose = "Debezium" if self.format == "debezium" else "the format"
            what = f'unchangedMarker has no meaning for format = "{self.format}"'
            raise ValueError(f"{what}: {whose} has a marker of its own")
        return self

    @model_validator(mode="after")
    def _topics_make_sense(self) -> Self:
        if not (self.table_topic_mapping or self.topic_prefix or self.topic_fallback):
            raise ValueError("no event has a topic: set tableTopicMapping, topicPrefix or topicFallback")
        for table, routes in self.table_topic_mapping.items():
            if self.topic_fallback in [route.topic for route in routes]:
                topic = self.topic_fallback
                raise ValueError(f'tableTopicMapping.{table}: the topic "{topic}" is the topicFallback already')
        self.make_router()
        return self

    @model_validator(mode="after")
    def _patterns_can_work(self) -> Self:
        for entry, columns in self.key_columns.items():
            if not columns:
                raise ValueError(f"key.{entry}: is empty; name at least one column")
        KeyColumns(self.key_columns)
        self.make_unchanged_policy()
        ExcludedColumns(self.exclude_columns)
        return self


@cache
def _add_format_options(section: type[EventOptions], options: type[FormatOptions]) -> Any:
    """The section's options, in which formatOptions has this type: what is wrong there is told key by key."""
    field = (options, Field(default_factory=dict, validate_default=True))
    return create_model(section.__name__, __base__=section, __module__=section.__module__, format_options=field)
