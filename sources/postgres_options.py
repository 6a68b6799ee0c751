"""The options of a `postgres` source."""

from __future__ import annotations

from typing import Annotated

import psycopg2
from psycopg2.extensions import parse_dsn
from pydantic import AfterValidator, BeforeValidator, Field

from psql_streamer.model import NO_LSN
from psql_streamer.options import ByteSize, LsnOption, PositiveDuration, SourceOptions


def _publications(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _connection_string(value: str) -> str:
    try:
        parse_dsn(value)
    except psycopg2.ProgrammingError:
        # libpq's own message quotes the part that it does not understand, which may be a password.
        raise ValueError(
            "is not a libpq connection string: write host=... dbname=... user=..., values with spaces in single quotes"
        ) from None
    return value


class PostgresOptions(SourceOptions):
    """[source.NAME] type = "postgres".

    batch_size, batch_bytes: upper bounds of a micro-batch in messages and bytes of WAL; batches are smaller whenever
    the service keeps up. receive_timeout: seconds after which a server that does not answer counts as lost.
    wal_position_override: start here and not at the stored position, once for each value. wal_retain: how many bytes of
    WAL the confirmed position stays behind, so that one can go back.
    """

    dsn: Annotated[str, AfterValidator(_connection_string)] = Field(min_length=1, repr=False)
    publications: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_publications), Field(min_length=1)
    ] = Field(alias="publication")
    replication_slot: str = Field(min_length=1, max_length=63, pattern="^[a-z0-9_]+$")
    timeout: PositiveDuration = 2.0
    receive_timeout: Annotated[PositiveDuration, Field(ge=1.0)] = 30.0
    batch_size: int = Field(default=10_000, gt=0)
    batch_bytes: Annotated[ByteSize, Field(gt=0)] = 4 << 20
    batch_flush_interval: PositiveDuration = 1.0
    wal_position_override: LsnOption = NO_LSN
    wal_retain: ByteSize = 0
