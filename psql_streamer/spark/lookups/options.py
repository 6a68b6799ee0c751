"""The options of a lookup: [spark.lookups.NAME]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from psql_streamer.options import PartOptions, PositiveByteSize, PositiveDuration

LookupKind: TypeAlias = Literal["csv", "json", "parquet", "jdbc", "postgres", "changelog"]
OnStale: TypeAlias = Literal["use", "wait", "stop"]

LOOK_AT_FILES_SECONDS = 5.0
"""Between two looks at whether files have changed."""

FILE_KINDS = ("csv", "json", "parquet")

_PLACES = ("path", "url", "source", "table", "query")

_TAKES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "csv": (("path",),),
    "json": (("path",),),
    "parquet": (("path",),),
    "jdbc": (("url", "table"), ("url", "query")),
    "postgres": (("source", "table"), ("source", "query"), ("url", "table"), ("url", "query")),
    "changelog": (("source", "table"),),
}
"""Kind -> the sets of keys that say where its rows are."""

_READ_BY_SPARK = (*FILE_KINDS, "jdbc")


def _convert_reader_option(value: object) -> object:
    """TOML has numbers and booleans; options of Spark's readers are strings."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


class LookupOptions(PartOptions):
    """A lookup: where its rows are, and when they are read again.

    path: of files, as Spark has it. url: of JDBC, or the DSN of a PostgreSQL server. source: a configured source.
    table, query: what is read there. options, schema: of Spark's reader.
    refresh: seconds between two reads, or "change": when the files have changed. None: it is read once.
    max_age: seconds after which a version is too old, and on_stale what then becomes of batches that need it.
    max_bytes: of its rows in the service's memory.
    """

    kind: LookupKind
    path: str | None = Field(default=None, min_length=1)
    url: SecretStr | None = Field(default=None, min_length=1)
    source: str | None = Field(default=None, min_length=1)
    table: str | None = Field(default=None, min_length=1)
    query: str | None = Field(default=None, min_length=1)
    options: dict[str, Annotated[str, BeforeValidator(_convert_reader_option)]] = Field(
        default_factory=dict, repr=False
    )
    schema_: str | None = Field(default=None, min_length=1, alias="schema")
    refresh: Literal["change"] | PositiveDuration | None = None
    max_age: PositiveDuration | None = None
    on_stale: OnStale = "use"
    max_bytes: PositiveByteSize = 64 << 20

    @property
    def address(self) -> str:
        """`url` in the clear: for whoever connects alone."""
        return "" if self.url is None else self.url.get_secret_value()

    @model_validator(mode="before")
    @classmethod
    def _read_change(cls, value: Any) -> Any:
        """Else the problem would be told twice, once for each of what `refresh` may be."""
        found = value.get("refresh") if isinstance(value, Mapping) else None
        if found is not None and not isinstance(found, str | int | float):
            raise ValueError('refresh must be a duration such as "5m", or "change"')
        return value

    @model_validator(mode="after")
    def _fits_its_kind(self) -> LookupOptions:
        given = {name for name in _PLACES if getattr(self, name) is not None}
        if given not in map(set, _TAKES[self.kind]):
            wanted = ", or ".join(" and ".join(names) for names in _TAKES[self.kind])
            raise ValueError(f'of kind "{self.kind}" takes {wanted}; it has {" and ".join(sorted(given)) or "neither"}')
        if self.kind not in _READ_BY_SPARK and self.options:
            raise ValueError(f'of kind "{self.kind}" takes no options, which are those of Spark\'s readers')
        if self.kind not in FILE_KINDS and self.schema_ is not None:
            raise ValueError(f'of kind "{self.kind}" takes no schema: its columns have types')
        self._refuse_refresh()
        return self

    def _refuse_refresh(self) -> None:
        if self.kind == "changelog" and (self.refresh or self.max_age or self.on_stale != "use"):
            raise ValueError('of kind "changelog" is kept current by the stream: leave out refresh, maxAge and onStale')
        if self.refresh == "change" and self.kind not in FILE_KINDS:
            raise ValueError(f'of kind "{self.kind}" takes a duration as refresh: only files tell when they change')
        if self.max_age is not None and self.refresh is None:
            raise ValueError("has maxAge without refresh: it would become too old and stay so")
        if self.max_age is not None and isinstance(self.refresh, float) and self.max_age <= self.refresh:
            raise ValueError("has a maxAge that is not longer than refresh: every version would become too old")
        if self.max_age is not None and self.refresh == "change" and self.max_age <= LOOK_AT_FILES_SECONDS:
            raise ValueError(
                f"has a maxAge that is not longer than {LOOK_AT_FILES_SECONDS:.0f} s, the time between two looks at "
                "its files: every version would become too old"
            )
        if self.on_stale != "use" and self.max_age is None:
            raise ValueError(f'has onStale = "{self.on_stale}" without maxAge, which says when a version is too old')
