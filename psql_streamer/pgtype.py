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
    labels: of an enum, in its order.
    """

    name: str
    oid: int
    array_oid: int
    form: JsonForm
    delimiter: str = ","
    element: PgType | None = None
    attributes: tuple[Attribute, ...] = ()
    base_oid: int = 0
    base_typmod: int = -1
    labels: tuple[str, ...] = ()
