"""Accounts of MySQL and MariaDB with the rights that docs/sources/mysql.md names, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mariadb import Schema

_PAGE = Path(__file__).parent.parent / "docs" / "sources" / "mysql.md"
_GRANT = re.compile(r"^GRANT (.+) ON \*\.\* TO cdc@'%';\s+-- (.+)$", re.MULTILINE)


def documented_rights() -> dict[str, str]:
    """The rights on everything, by what the page says of whom they are for."""
    return {product: rights for rights, product in _GRANT.findall(_PAGE.read_text())}


def rights_on(schema: Schema, *, own_id: bool = False) -> str:
    """Those for the server of a schema. own_id: with what `serverId` needs."""
    product = "MySQL" if schema.on_mysql else "MariaDB"
    return documented_rights()[f"{product}, with serverId" if own_id and not schema.on_mysql else product]


@contextmanager
def documented_account(schema: Schema, *, own_id: bool = False, on_tables: str = "") -> Iterator[str]:
    """The dsn of an account; it is gone afterwards. on_tables: its rights on the tables of the schema."""
    name = f"cdc{schema.name[-8:]}"
    schema.execute(
        f"CREATE USER {name}@'%' IDENTIFIED BY 'p@ss/ü'",
        f"GRANT {rights_on(schema, own_id=own_id)} ON *.* TO {name}@'%'",
    )
    if on_tables:
        schema.execute(f"GRANT {on_tables} ON {schema.name}.* TO {name}@'%'")
    try:
        yield f"mysql://{name}:p%40ss%2F%C3%BC@{schema.host}:{schema.port}/"
    finally:
        schema.execute(f"DROP USER {name}@'%'")
