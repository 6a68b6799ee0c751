"""What is known of a PostgreSQL type: how its text form becomes JSON, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class JsonForm(Enum):
    """What PostgreSQL's text form of a value becomes in JSON."""

    NUMBER = "the digits as they are; NaN and Infinity, which JSON cannot say, as strings"
    INTEGER = "the digits as they are"
    BOOLEAN = "true or false"
    TEXT = "a string"
    EMBEDDED = "the JSON document itself, byte for byte"
    BASE64 = "a string, base64"
    TIMESTAMP = "a string, ISO 8601, up to microseconds; infinity, BC and years past 9999 as PostgreSQL writes them"
    TIMESTAMP_UTC = "a string, ISO 8601 in UTC; else as for timestamp"
    ARRAY = "an array, nested for every dimension, of what its elements become; lower bounds are dropped"
    OBJECT = "an object with a member for each attribute"


class Logical(Enum):
    """What the values of a type are, for all who make something else of them."""

    BIT = "bits, as many as the type says"
    BOOLEAN = "true and false"
    BYTES = "bytes"
    DATE = "days"
    FLOAT4 = "floats of 4 bytes"
    FLOAT8 = "floats of 8 bytes"
    HSTORE = "texts by key (extension hstore)"
    INT2 = "integers of 2 bytes"
    INT2VECTOR = "a list of INT2"
    INT4 = "integers of 4 bytes"
    INT8 = "integers of 8 bytes"
    INTERVAL = "months, days and microseconds"
    JSON = "JSON documents"
    LTREE = "paths of labels (extension ltree)"
    MONEY = "amounts, as the locale writes them"
    NUMERIC = "decimals"
    OID = "integers of 4 bytes without sign"
    OIDVECTOR = "a list of OID"
    POINT = "x and y"
    TEXT = "characters"
    TIME = "times of a day"
    TIMESTAMP = "moments without a zone"
    TIMESTAMPTZ = "moments"
    TIMETZ = "times of a day with an offset"
    TSVECTOR = "lexemes"
    UUID = "UUIDs"
    VARBIT = "bits, up to as many as the type says"
    XID = "transaction ids, 4 bytes without sign"
    XML = "XML documents"
    OTHER = "whatever has only its text form"


@dataclass(frozen=True, slots=True)
class PostgresType:
    """The type of a column of PostgreSQL's: pg_attribute's atttypid and atttypmod. Its values are in PostgreSQL's text
    form, as `binary`.

    known: what the OID stands for, where the source could say; it takes no part in comparisons.
    """

    oid: int
    typmod: int = -1
    known: PgType | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a composite type."""

    name: str
    type: PgType
    typmod: int = -1


@dataclass(frozen=True, slots=True)
class PgType:
    """A type. A domain has everything of the type that it is over, and says so in `base_oid`.

    array_oid: the type of arrays of it (0: has none). delimiter: between its elements in such an array.
    element: what an array type (form ARRAY) has as elements. attributes: of a composite type (form OBJECT).
    base_oid, base_typmod: of the type that a domain is over in the end; 0 for what is not a domain.
    labels: of an enum, in its order. logical: what its values are. sql: SQL's name for it, where that is not `name`.
    """

    name: str
    oid: int
    array_oid: int
    form: JsonForm
    delimiter: str = ","
    logical: Logical = Logical.OTHER
    sql: str = ""
    element: PgType | None = None
    attributes: tuple[Attribute, ...] = ()
    base_oid: int = 0
    base_typmod: int = -1
    labels: tuple[str, ...] = ()
