"""Which kind of database a URL leads to."""

from __future__ import annotations

from sqlalchemy.engine import URL

from sources.sql.engines.engine import AnyEngine
from sources.sql.engines.mysql import MysqlEngine
from sources.sql.engines.postgresql import PostgresqlEngine
from sources.sql.engines.sqlite import SqliteEngine

_BY_DIALECT: dict[str, type[AnyEngine]] = {
    "mariadb": MysqlEngine,
    "mysql": MysqlEngine,
    "postgresql": PostgresqlEngine,
    "sqlite": SqliteEngine,
}


def make_engine(url: URL, timeout: float, lock_timeout: float) -> AnyEngine:
    """What the source knows of this database. timeout: seconds for each look at it. lock_timeout: for a lock."""
    return _BY_DIALECT.get(url.get_backend_name(), AnyEngine)(url, timeout, lock_timeout)
