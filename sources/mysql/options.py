"""What [source.NAME] with type = "mysql" may hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from psql_streamer.named_files import find_unreadable
from psql_streamer.options import PositiveByteSize, PositiveDuration, SourceOptions
from psql_streamer.table_patterns import TablePatterns
from sources.mysql.dsn import Address, parse_dsn
from sources.mysql.places import parse_override
from sources.mysql.snapshot.options import SnapshotOption, SnapshotOptions

_MOST_EVENTS = 100_000_000
_MOST_SERVER_ID = (1 << 32) - 1
_CHOICE_DIGITS = 16

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
"""Schemas that are the server's own, and never streamed."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_dsn(value: SecretStr) -> SecretStr:
    address = parse_dsn(value.get_secret_value())
    if problems := "; ".join(find_unreadable(address.list_tls_files())):
        raise ValueError(problems)
    return value


def _check_patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    TablePatterns(dict.fromkeys(value))
    return value


Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_list), AfterValidator(_check_patterns)
]
"""Names, globs and regular expressions of tables: a text, or a list of them."""


def _check_override(value: str) -> str:
    if value:
        parse_override(value)
    return value


class MysqlOptions(SourceOptions):
    """[source.NAME] type = "mysql".

    tables, exclude_tables: what is streamed, and what of it is not. server_id: by which the server knows this source
    among its replicas; 0: one is made up at every start of the service. batch_size, batch_bytes: upper bounds of a
    micro-batch in events and bytes of the binary log. receive_timeout: seconds after which a server that sends nothing,
    not even a heartbeat, counts as lost. position_override: start here and not at the stored position, once for each
    value. snapshot: what is read of the rows that the tables have already.
    """

    dsn: Annotated[SecretStr, AfterValidator(_check_dsn)] = Field(min_length=1)
    tables: Annotated[Patterns, Field(min_length=1)] = ("*",)
    exclude_tables: Patterns = ()
    server_id: int = Field(default=0, ge=0, le=_MOST_SERVER_ID)
    timeout: PositiveDuration = 2.0
    receive_timeout: Annotated[PositiveDuration, Field(ge=1.0)] = 30.0
    batch_size: int = Field(default=10_000, gt=0, le=_MOST_EVENTS)
    batch_bytes: Annotated[PositiveByteSize, Field(le=1 << 30)] = 4 << 20
    batch_flush_interval: PositiveDuration = 1.0
    position_override: Annotated[str, AfterValidator(_check_override)] = ""
    snapshot: SnapshotOption = SnapshotOptions()

    @property
    def address(self) -> Address:
        """The dsn, taken apart."""
        return parse_dsn(self.dsn.get_secret_value())

    def list_resources(self) -> Iterable[str]:
        """Its server id, where it was given one: of two clients with the same the server ends the elder."""
        return () if not self.server_id else (f"server id {self.server_id} on {self.address}",)


class Wanted:
    """Which tables a section asks for. Asked for every table that the binary log shows, so answers are kept.

    choice: a text that is the same for the same entries, in any order.
    """

    def __init__(self, options: MysqlOptions) -> None:
        self._tables = TablePatterns(dict.fromkeys(options.tables))
        self._excluded = TablePatterns(dict.fromkeys(options.exclude_tables))
        self._known: dict[tuple[str, str], bool] = {}
        chosen = [sorted(set(entries)) for entries in (options.tables, options.exclude_tables)]
        self.choice = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:_CHOICE_DIGITS]

    def __call__(self, schema: str, table: str) -> bool:
        """Whether the table is streamed."""
        known = self._known.get((schema, table))
        if known is None:
            known = self._known[schema, table] = self._is_wanted(schema, table)
        return known

    def _is_wanted(self, schema: str, table: str) -> bool:
        return (
            schema.lower() not in SYSTEM_SCHEMAS
            and self._tables.find(schema, table) is not None
            and self._excluded.find(schema, table) is None
        )
