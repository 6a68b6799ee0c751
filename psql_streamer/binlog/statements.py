"""What a statement in the binlog is about: transactions, tables, rows. Never what values it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from psql_streamer.binlog.statement_text import AMBIGUOUS, BLANK, EXECUTABLE


class StatementKind(Enum):
    """What becomes of a QUERY event."""

    BEGIN = "begins a transaction"
    COMMIT = "ends it"
    ROLLBACK = "ends it, and undoes it"
    SAVEPOINT = "a transaction can be rolled back to here"
    ROLLBACK_TO = "what is behind a savepoint is undone"
    XA_START = "begins an XA transaction"
    XA_COMMIT = "an XA transaction that was prepared is committed"
    XA_ROLLBACK = "it is rolled back"
    TRUNCATE = "a table is emptied"
    DDL = "changes tables"
    ROWS = "changes rows, and only the statement is in the binlog"
    OTHER = "changes neither rows nor tables"


class Statement(NamedTuple):
    """words: the first ones, `ALTER TABLE`. schema, table: empty where it has none, or none that was found; of a
    statement about a schema the table is. xid: of XA statements. others: schema and name of the tables behind the first
    one, of DROP and RENAME; the new name that ALTER TABLE gives, or the table with which it exchanges rows. between:
    what ALTER TABLE does with that one. savepoint: its name.
    """

    kind: StatementKind
    words: str
    schema: str = ""
    table: str = ""
    xid: bytes = b""
    others: tuple[tuple[str, str], ...] = ()
    savepoint: str = ""
    between: str = "RENAME TO"

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """Schema and name of every table that it names as what it changes."""
        return ((self.schema, self.table), *self.others) if self.table else ()

    @property
    def calls_function(self) -> bool:
        """Whether it is a call of a stored function: what it names is that, and not the tables that change."""
        return self.words in _CALLS

    @property
    def drops_schema(self) -> bool:
        """Whether all tables of a schema are dropped with it."""
        return self.words in _DROP_SCHEMA

    @property
    def shown(self) -> str:
        """What it is and what it is about: `RENAME TABLE a.t TO a.u`. Nothing else that stands in it."""
        names = [f"{schema}.{name}" for schema, name in self.tables] or [self.schema]
        if self.words == _RENAME and len(names) % 2 == 0:
            names = [f"{old} TO {new}" for old, new in zip(names[::2], names[1::2], strict=True)]
        elif self.words == _ALTER:
            names = [f" {self.between} ".join(names)]
        return f"{self.words} {', '.join(names)}".strip()


_BLANK = re.compile(rb"(?:" + BLANK + rb"|" + EXECUTABLE + rb"\d*|\*/)+")
"""What servers execute in a comment counts."""

_WORD = re.compile(rb"[A-Za-z_]+(?![\w$\x80-\xff])")
_NAME = rb"(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$\x80-\xff]+))"
_ONE_NAME = re.compile(_NAME)
_DOT = rb"(?:" + BLANK + rb")*\.(?:" + BLANK + rb")*"
_TABLE = re.compile(_NAME + rb"(?:" + _DOT + _NAME + rb")?")

_ROWS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"}
_CALLS = {"SELECT", "DO"}
"""A call of a stored function stands in the binlog if the function changes rows, and these are not there."""

_TABLE_STATEMENTS = {"CREATE", "ALTER", "DROP", "RENAME"}
_OBJECTS = {"TABLE": "TABLE", "TABLES": "TABLE", "SEQUENCE": "SEQUENCE"}
"""As they are shown. A sequence of MariaDB is a table of one row."""

_SCHEMAS = {"DATABASE", "SCHEMA"}
_DROP_SCHEMA = {f"{begin} {word}" for begin in ("DROP", "CREATE OR REPLACE") for word in _SCHEMAS}
_INTO = {"INSERT", "REPLACE"}
"""Those that name the one table that they change first."""

_ANALYZE_TABLE = {"TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"}
"""What is behind ANALYZE where it looks at tables. MariaDB's ANALYZE of another statement runs that one."""

_BEFORE_OBJECT = {"TEMPORARY", "OR", "REPLACE", "ONLINE", "OFFLINE", "IGNORE"}
_BEFORE_NAME = {"IF", "NOT", "EXISTS"}
"""Words between the object's word and its name. All are reserved: a name that is one of them is quoted."""

_BEFORE_ROWS = {"INTO", "IGNORE", "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED"}


def read_statement(text: bytes, schema: str) -> Statement:
    """schema: the one in use, for names without."""
    words, at = _read_words(text)
    if not words:
        return Statement(StatementKind.OTHER, "")
    first = words[0]
    if first in _SIMPLE:
        if first == "SAVEPOINT":
            return _read_savepoint(StatementKind.SAVEPOINT, text, at[0] + len(first))
        if first == "ROLLBACK" and "TO" in words[1:3]:
            return _read_savepoint(StatementKind.ROLLBACK_TO, text, at[words.index("TO", 1)] + len("TO"))
        return Statement(_SIMPLE[first], first)
    if first == "XA":
        return _read_xa_statement(text, words, at)
    if first == "TRUNCATE":
        place = 1 if words[1:2] == ["TABLE"] else 0
        return _read_table_statement(StatementKind.TRUNCATE, "TRUNCATE TABLE", text, words[place:], at[place:], schema)
    if first in _TABLE_STATEMENTS:
        return _read_ddl_statement(text, words, at, schema)
    if first in _INTO or first in _CALLS:
        return _read_table_statement(StatementKind.ROWS, first, text, words, at, schema)
    if words[:2] == ["SET", "STATEMENT"] and (begins := _find_inner_statement(text, at[1])):
        return read_statement(text[begins:], schema)
    changes_rows = first in _ROWS or (first == "ANALYZE" and words[1:2] and words[1] not in _ANALYZE_TABLE)
    return Statement(StatementKind.ROWS if changes_rows else StatementKind.OTHER, first)


_SIMPLE = {
    "BEGIN": StatementKind.BEGIN,
    "START": StatementKind.BEGIN,
    "COMMIT": StatementKind.COMMIT,
    "ROLLBACK": StatementKind.ROLLBACK,
    "SAVEPOINT": StatementKind.SAVEPOINT,
    "RELEASE": StatementKind.OTHER,
}


def _read_savepoint(kind: StatementKind, text: bytes, at: int) -> Statement:
    """Its name is the last one: `ROLLBACK TO SAVEPOINT s`."""
    name = ""
    while found := _ONE_NAME.match(text, _skip_blank(text, at)):
        name, at = _unquote_name(found.groups()) or "", found.end()
    return Statement(kind, kind.name.replace("_", " "), savepoint=name)


_XA = {
    "START": StatementKind.XA_START,
    "BEGIN": StatementKind.XA_START,
    "COMMIT": StatementKind.XA_COMMIT,
    "ROLLBACK": StatementKind.XA_ROLLBACK,
}


def _read_xa_statement(text: bytes, words: list[str], at: list[int]) -> Statement:
    kind = _XA.get(words[1] if len(words) > 1 else "", StatementKind.OTHER)
    behind = text[at[1] + len(words[1]) :] if len(words) > 1 else b""
    return Statement(kind, " ".join(words[:2]), xid=behind.strip().lower())


def _read_ddl_statement(text: bytes, words: list[str], at: list[int], schema: str) -> Statement:
    begin = " ".join(words[:3]) if words[1:3] == ["OR", "REPLACE"] else words[0]
    for place, word in enumerate(words[1:], 1):
        if word in _OBJECTS and "TEMPORARY" in words[1:place]:
            return Statement(StatementKind.OTHER, f"{words[0]} TEMPORARY {_OBJECTS[word]}")
        if word in _OBJECTS:
            kind = StatementKind.ROWS if words[0] == "CREATE" and _has_query(text, at[place]) else StatementKind.DDL
            return _read_table_statement(kind, f"{begin} {_OBJECTS[word]}", text, words[place:], at[place:], schema)
        if word in _SCHEMAS and words[0] in ("CREATE", "DROP"):
            found = _read_table_statement(StatementKind.DDL, f"{begin} {word}", text, words[place:], at[place:], "")
            return found._replace(schema=found.table, table="")
        if word not in _BEFORE_OBJECT:
            break
    return Statement(StatementKind.DDL, " ".join(words[:2]))


def _read_table_statement(
    kind: StatementKind, name: str, text: bytes, words: list[str], at: list[int], schema: str
) -> Statement:
    """words: the one in front of the table's name, such as `TABLE`; behind it there may be some such as `IF EXISTS`."""
    place, between = 1, _BEFORE_ROWS if name in _INTO else _BEFORE_NAME
    while place < len(words) and words[place] in between:
        place += 1
    found = _TABLE.match(text, _skip_blank(text, at[place - 1] + len(words[place - 1])))
    if found is None:
        return Statement(kind, name)
    if name == _ALTER and (exchange := _find_exchange(text, found.end(), schema)):
        what, other = exchange
        return Statement(kind, name, *_resolve_name(found, schema), others=(other,), between=what)
    find_others = _OF_SEVERAL.get(name)
    others = tuple(find_others(text, found.end(), schema)) if find_others else ()
    return Statement(kind, name, *_resolve_name(found, schema), others=others)


_RENAME, _ALTER = "RENAME TABLE", "ALTER TABLE"
_NEXT = re.compile(rb",|TO\b", re.IGNORECASE)
_PATIENCE = re.compile(rb"(?:NOWAIT|WAIT\s+\d+)\b", re.IGNORECASE)
"""How long MariaDB waits for a lock, behind the name of a table that it renames."""


def _find_other_tables(text: bytes, at: int, schema: str) -> Iterator[tuple[str, str]]:
    """The tables behind the first one, which ends there."""
    while between := _NEXT.match(text, _skip_patience(text, at)):
        found = _TABLE.match(text, _skip_blank(text, between.end()))
        if found is None:
            return
        yield _resolve_name(found, schema)
        at = found.end()


def _skip_patience(text: bytes, at: int) -> int:
    at = _skip_blank(text, at)
    found = _PATIENCE.match(text, at)
    return _skip_blank(text, found.end()) if found else at


_ALTERATION = re.compile(
    rb"(?P<blank>(?:" + BLANK + rb"|" + EXECUTABLE + rb"\d*|\*/)+)"
    rb"|(?P<open>\()|(?P<close>\))|(?P<comma>,)"
    rb"|(?P<rename>RENAME(?![\w$\x80-\xff]))"
    rb"|(?P<word>[\w$\x80-\xff]+|`(?:[^`]|``)*`)"
    rb"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    rb"|(?P<other>.)",
    re.DOTALL | re.IGNORECASE,
)
_NEW_NAME = re.compile(rb"(?!(?:COLUMN|INDEX|KEY)\b)(?:(?:TO|AS)(?![\w$\x80-\xff])|=)?", re.IGNORECASE)


def _find_new_name(text: bytes, at: int, schema: str) -> Iterator[tuple[str, str]]:
    """What ALTER TABLE renames the table to. Alterations are behind its name, with commas between them.

    Nothing behind a text of which the end is not certain: what looks like a name there may be a part of a value.
    """
    depth, begins = 0, True
    for token in _ALTERATION.finditer(text, _skip_patience(text, at)):
        kind = token.lastgroup
        if kind == "text" and AMBIGUOUS.search(token.group()):
            return
        depth += (kind == "open") - (kind == "close")
        if kind == "rename" and begins and not depth:
            between = _NEW_NAME.match(text, _skip_blank(text, token.end()))
            found = _TABLE.match(text, _skip_blank(text, between.end())) if between else None
            if found is not None:
                yield _resolve_name(found, schema)
        begins = kind == "comma" or (begins and kind == "blank")


_GAP = rb"(?:" + BLANK + rb"|" + EXECUTABLE + rb"\d*|\*/)+"
_EXCHANGES = {
    shown: re.compile(_GAP.join((_NAME if word == "p" else word.encode()) for word in words.split()) + _GAP, re.I)
    for shown, words in (
        ("EXCHANGE PARTITION WITH TABLE", "EXCHANGE PARTITION p WITH TABLE"),
        ("CONVERT PARTITION TO TABLE", "CONVERT PARTITION p TO TABLE"),
        ("CONVERT TABLE", "CONVERT TABLE"),
    )
}


def _find_exchange(text: bytes, at: int, schema: str) -> tuple[str, tuple[str, str]] | None:
    """What ALTER TABLE, whose table's name ends there, does with the rows of another table, and that table. No other
    alteration may stand beside this one.
    """
    at = _skip_patience(text, at)
    for shown, words in _EXCHANGES.items():
        if (begun := words.match(text, at)) and (found := _TABLE.match(text, begun.end())):
            return shown, _resolve_name(found, schema)
    return None


class _BareWord(NamedTuple):
    """A word that is no name and no part of a text. depth: parentheses around it."""

    text: str
    end: int
    depth: int


def _find_bare_words(text: bytes, at: int) -> Iterator[_BareWord]:
    """From a place on. Behind a dot any word is a name, without quotes, too."""
    depth, before = 0, b""
    for token in _ALTERATION.finditer(text, at):
        found, kind = token.group(), token.lastgroup
        if kind == "blank":
            continue
        depth += (kind == "open") - (kind == "close")
        if kind in ("word", "rename") and before != b"." and not found.startswith(b"`"):
            yield _BareWord(found.decode(errors="replace").upper(), token.end(), depth)
        before = found


def _has_query(text: bytes, at: int) -> bool:
    """Whether CREATE TABLE, whose TABLE is there, fills the table with what a query gives. In the place of such a
    statement the binlog has the columns and the rows, where its format is ROW.
    """
    words = list(_find_bare_words(text, at))
    return any(
        word.text in ("SELECT", "TABLE") or (word.text == "VALUES" and following not in _PARTITION_VALUES)
        for word, following in zip(words[1:], [*(word.text for word in words[2:]), ""], strict=True)
    )


_PARTITION_VALUES = ("LESS", "IN")
"""Behind VALUES, of a partition."""


def _find_inner_statement(text: bytes, at: int) -> int | None:
    """Where the statement begins that MariaDB's SET STATEMENT runs; None for none."""
    return next((word.end for word in _find_bare_words(text, at) if word.text == "FOR" and not word.depth), None)


_OF_SEVERAL = {
    "DROP TABLE": _find_other_tables,
    "DROP SEQUENCE": _find_other_tables,
    _RENAME: _find_other_tables,
    _ALTER: _find_new_name,
}


def _resolve_name(found: re.Match[bytes], schema: str) -> tuple[str, str]:
    parts = [_unquote_name(found.groups()[:3]), _unquote_name(found.groups()[3:])]
    return (schema, parts[0] or "") if parts[1] is None else (parts[0] or "", parts[1])


def _unquote_name(found: tuple[bytes | None, ...]) -> str | None:
    for quote, part in zip((b"`", b'"', b""), found, strict=True):
        if part is not None:
            return (part.replace(quote * 2, quote) if quote else part).decode(errors="replace")
    return None


def _read_words(text: bytes) -> tuple[list[str], list[int]]:
    """The first words in upper case, and where each begins."""
    words: list[str] = []
    places: list[int] = []
    at = _skip_blank(text, 0)
    while len(words) < _MOST_WORDS and (found := _WORD.match(text, at)):
        words.append(found.group().decode().upper())
        places.append(at)
        at = _skip_blank(text, found.end())
    return words, places


_MOST_WORDS = 8


def _skip_blank(text: bytes, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
