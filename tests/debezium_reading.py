"""What a reader of the format `debezium` makes of a value by its Connect schema: PostgreSQL's text form of it.

Source: Debezium documentation, "PostgreSQL connector", data type mappings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import Any

_EXACT = Context(prec=200_000)
_DAY = 86_400_000_000
_INFINITE = {9223372036825200000: "infinity", -9223372036832400000: "-infinity"}
_INFINITE_DATES = {-2147472692: "infinity", -2147472691: "-infinity"}
_ERA = timedelta(days=146_097)


def read(schema: dict[str, Any], value: Any) -> str:
    """PostgreSQL takes it for a value of the column's type."""
    name = schema.get("name", schema["type"])
    return str(_READERS[name](schema, value) if name in _READERS else value)


def _number(encoded: str) -> int:
    return int.from_bytes(base64.b64decode(encoded), "big", signed=True)


def _decimal(unscaled: int, scale: int) -> str:
    return format(Decimal(unscaled).scaleb(-scale, _EXACT), "f")


def _date(days: int) -> str:
    if days in _INFINITE_DATES:
        return _INFINITE_DATES[days]
    # Eras of 400 years, which all have the same days, so that Python's years suffice.
    eras, rest = divmod(days, _ERA.days)
    day = date(1970, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * eras
    return f"{1 - year:04}-{day:%m-%d} BC" if year < 1 else f"{year:04}-{day:%m-%d}"


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _timestamp(micros: int) -> str:
    if micros in _INFINITE:
        return _INFINITE[micros]
    days, clock = divmod(micros, _DAY)
    day, _, era = _date(days).partition(" ")
    return f"{day} {_clock(clock)} {era}"


def _zoned_timestamp(value: str) -> str:
    found = re.fullmatch(r"([+-]?\d+)(-\d\d-\d\dT.*)Z", value)
    if not found:
        return value
    year = int(found[1])
    return f"{1 - year:04}{found[2]}+00 BC" if year < 1 else f"{year:04}{found[2]}+00"


def _bits(schema: dict[str, Any], value: str) -> str:
    length = int(schema["parameters"]["length"])
    digits = f"{int.from_bytes(base64.b64decode(value), 'little'):b}"
    return digits.zfill(length) if length < 2**31 - 1 else digits


_READERS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "array": lambda _, value: " ".join(map(str, value)),
    "boolean": lambda _, value: "1" if value else "0",  # which is a bit as well
    "bytes": lambda _, value: "\\x" + base64.b64decode(value).hex(),
    "io.debezium.data.Bits": _bits,
    "io.debezium.data.VariableScaleDecimal": lambda _, value: _decimal(_number(value["value"]), value["scale"]),
    "io.debezium.data.geometry.Point": lambda _, value: f"({value['x']},{value['y']})",
    "io.debezium.time.Date": lambda _, value: _date(value),
    "io.debezium.time.MicroDuration": lambda _, value: f"{value} microseconds",
    "io.debezium.time.MicroTime": lambda _, value: _clock(value),
    "io.debezium.time.MicroTimestamp": lambda _, value: _timestamp(value),
    "io.debezium.time.Time": lambda _, value: _clock(value * 1000),
    "io.debezium.time.Timestamp": lambda _, value: _timestamp(value * 1000),
    "io.debezium.time.ZonedTimestamp": lambda _, value: _zoned_timestamp(value),
    "org.apache.kafka.connect.data.Decimal": lambda schema, value: _decimal(
        _number(value), int(schema["parameters"]["scale"])
    ),
}
"""By the schema's name, or its type where it has none; everything else is the text form."""
