"""Text forms of single values as Debezium's default modes write them, where that takes more than quoting.

Temporal values count from 1970-01-01 UTC in the proleptic Gregorian calendar, which PostgreSQL uses as well. Each
function takes one text form and gives JSON, or None for what Debezium's type cannot hold (NaN in a decimal).
Source: Debezium documentation, "PostgreSQL connector", data type mappings.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from decimal import Decimal

_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_OFFSET = re.compile(r"([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?$")
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
)
_HOURS = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_HSTORE_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_HSTORE = re.compile(rf"(?:{_HSTORE_PAIR.pattern}(?:, (?!$)|$))*", re.DOTALL)
_POINT = re.compile(r"\((.+),(.+)\)")

_INT_DIGITS = 4300

_WKB_HEAD = 5
"""Bytes in front of the coordinates of a point: the order of bytes, and its kind."""

_DAY = 86_400_000_000
_MONTH = 2_629_800_000_000  # 30.4375 days, a twelfth of 365.25

INFINITE_TIMESTAMPS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""Microseconds: the JDBC driver's numbers for them (PGStatement.DATE_POSITIVE_INFINITY, DATE_NEGATIVE_INFINITY)."""

INFINITE_DATES = {"infinity": -2147472692, "-infinity": -2147472691}
"""Days: the years -5877611-06-21 and -22, to which the JDBC driver's numbers wrap around."""


def render_text(value: str) -> str:
    """A JSON string."""
    return json.dumps(value, ensure_ascii=False)


def render_date(value: str) -> str | None:
    """Days."""
    return _render_number(INFINITE_DATES.get(value, _count_days(value)))


def render_timestamp(value: str) -> str | None:
    """Microseconds; of the years after 294247 they are too many for 64 bits."""
    return _render_int64(_count_micros(value))


def render_timestamp_millis(value: str) -> str | None:
    """Milliseconds, for timestamp(0) to timestamp(3)."""
    micros = _count_micros(value)
    return None if micros is None else str(micros // 1000)


def render_zoned_timestamp(value: str, digits: int) -> str | None:
    """ISO 8601 in UTC with so many digits of a second; the year as Java writes it: -0043 is 44 BC, +10000. None for
    MySQL's zero timestamp."""
    if value in INFINITE_TIMESTAMPS:
        return render_text(value)
    found = _DATE.match(value)
    clock = _CLOCK.search(value)
    if not found or not clock:
        return render_text(value)
    if found[2] == "00":
        return None
    fraction = f".{clock[4] or '':0<6}"[: digits + 1] if digits else ""
    return f'"{_render_java_year(int(found[1]), value)}-{found[2]}-{found[3]}T{clock[0][:8]}{fraction}Z"'


def render_time(value: str) -> str | None:
    """Microseconds since midnight."""
    return _render_number(_count_clock_micros(value))


def render_time_millis(value: str) -> str | None:
    """Milliseconds since midnight, for time(0) to time(3)."""
    micros = _count_clock_micros(value)
    return None if micros is None else str(micros // 1000)


def render_zoned_time(value: str) -> str:
    """ISO 8601, moved to UTC; 24:00:00 in UTC stays."""
    offset, clock = _OFFSET.search(value), _count_clock_micros(value)
    if not offset or clock is None:
        return render_text(value)
    if value == "24:00:00+00":
        return render_text("24:00:00Z")
    seconds = int(offset[2]) * 3600 + int(offset[3] or 0) * 60 + int(offset[4] or 0)
    shift = seconds * 1_000_000 * (-1 if offset[1] == "-" else 1)
    micros = (clock - shift) % _DAY
    whole, fraction = divmod(micros, 1_000_000)
    decimals = f".{fraction:06}".rstrip("0") if fraction else ""
    return f'"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{decimals}Z"'


def render_interval(value: str) -> str | None:
    """Microseconds, with months of 30.4375 days; the text form is ISO 8601's, or hours, minutes and seconds."""
    found = _INTERVAL.fullmatch(value)
    if not found:
        return _render_hours(value)
    years, months, weeks, days, hours, minutes = (int(found[at] or 0) for at in range(1, 7))
    seconds = int(found[8] or 0) * 1_000_000 + int(f"{found[9] or '':0<6}")
    micros = (years * 12 + months) * _MONTH + (weeks * 7 + days) * _DAY + (hours * 60 + minutes) * 60_000_000
    micros += -seconds if found[7] else seconds
    return _render_int64(micros)


def _render_hours(value: str) -> str | None:
    found = _HOURS.fullmatch(value)
    if not found:
        return None
    hours, minutes, seconds = (int(found[at]) for at in range(2, 5))
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int(f"{found[5] or '':0<6}")
    return _render_int64(-micros if found[1] else micros)


def render_decimal(value: str, scale: int) -> str | None:
    """Connect's Decimal: the unscaled number in two's complement, big-endian, base64."""
    return _render_base64_number(_compute_unscaled(value, scale)) if _DECIMAL.fullmatch(value) else None


def render_variable_decimal(value: str) -> str | None:
    """Debezium's VariableScaleDecimal, without zeros at the end: 1.50 and 1.5, which are equal, are one key."""
    if not _DECIMAL.fullmatch(value):
        return None
    scale = len(value.partition(".")[2].rstrip("0"))
    return f'{{"scale":{scale},"value":{_render_base64_number(_compute_unscaled(value, scale))}}}'


def render_money(value: str) -> str | None:
    """A Decimal of two digits behind the point. What stands around the digits depends on lc_monetary."""
    digits = re.sub(r"\D", "", value)
    if not digits:
        return None
    has_fraction = re.search(r"[.,]\d\d\D*$", value)
    unscaled = int(digits) * (1 if has_fraction else 100)
    return _render_base64_number(-unscaled if "-" in value or "(" in value else unscaled)


def render_bit(value: str) -> str | None:
    """bit(1), or varbit(1), which can be empty."""
    return {"1": "true", "0": "false"}.get(value)


def render_bits(value: str) -> str:
    """Debezium's Bits: little-endian bytes up to the last bit that is set, base64."""
    number = int(value or "0", 2)
    return render_base64(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def render_all_bits(value: str) -> str:
    """The same of MySQL: as many bytes as the column has."""
    return render_base64(int(value, 2).to_bytes((len(value) + 7) // 8, "little"))


def render_point(value: str) -> str | None:
    """Debezium's Point: coordinates, and the same as well-known binary."""
    found = _POINT.fullmatch(value)
    if not found:
        return None
    x, y = map(render_double, found.groups())
    binary = struct.pack("<BIdd", 1, 1, float(found[1]), float(found[2]))
    return f'{{"x":{x},"y":{y},"wkb":{render_base64(binary)},"srid":null}}'


def render_geometry_point(value: str) -> str:
    """The same of a POINT of MySQL's, whose text form is a JSON object."""
    srid, binary = _read_geometry(value)
    x, y = struct.unpack_from("<dd" if binary[0] else ">dd", binary, _WKB_HEAD)
    return f'{{"x":{x!r},"y":{y!r},"wkb":{render_base64(binary)},"srid":{srid}}}'


def render_geometry(value: str) -> str:
    """Debezium's Geometry, of MySQL's geometries of all kinds."""
    srid, binary = _read_geometry(value)
    return f'{{"wkb":{render_base64(binary)},"srid":{srid}}}'


def _read_geometry(value: str) -> tuple[str, bytes]:
    """Its reference system as JSON, null where there is none, and its well-known binary."""
    found = json.loads(value)
    return str(found["srid"] or "null"), base64.b64decode(found["wkb"])


def render_floats(value: str) -> str:
    """A VECTOR of MySQL's, whose text form is a JSON array."""
    return f"[{','.join(map(render_double, value.strip('[]').split(',')))}]"


def render_vector(value: str) -> str:
    """int2vector and oidvector: an array."""
    return f"[{','.join(value.split())}]"


def render_hstore(value: str) -> str | None:
    """A JSON document in a string. Any type may be called hstore: another one's text is None."""
    if not _HSTORE.fullmatch(value):
        return None
    members = {
        _unescape_text(one[1]): None if one[2] is None else _unescape_text(one[2])
        for one in _HSTORE_PAIR.finditer(value)
    }
    return render_text(json.dumps(members, ensure_ascii=False, separators=(",", ":")))


def _unescape_text(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)


def _count_days(value: str) -> int | None:
    """Days of a date at the start of the text. Years before Christ have `BC` at its end."""
    found = _DATE.match(value)
    if not found:
        return None
    year, month, day = map(int, found.groups())
    if not month or not day:
        return None  # MySQL has such dates
    if value.endswith("BC"):
        year = 1 - year
    # Years that begin in March, so that a leap day is the last of one.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _count_micros(value: str) -> int | None:
    """None also for the moment in the year 294247 whose number stands for infinity."""
    if value in INFINITE_TIMESTAMPS:
        return INFINITE_TIMESTAMPS[value]
    days, clock = _count_days(value), _count_clock_micros(value)
    if days is None or clock is None:
        return None
    micros = days * _DAY + clock
    return None if micros in INFINITE_TIMESTAMPS.values() else micros


def _count_clock_micros(value: str) -> int | None:
    found = _CLOCK.search(value)
    if not found:
        return None
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return seconds * 1_000_000 + int(f"{found[4] or '':0<6}")


def _render_number(number: int | None) -> str | None:
    return None if number is None else str(number)


def _render_int64(number: int | None) -> str | None:
    return None if number is None or not -(1 << 63) <= number < 1 << 63 else str(number)


def _compute_unscaled(value: str, scale: int) -> int:
    whole, _, fraction = value.partition(".")
    digits = whole + fraction[: max(0, scale)].ljust(max(0, scale), "0")
    # int() takes no more digits of a text (sys.set_int_max_str_digits); numeric has up to 147,455.
    unscaled = int(digits) if len(digits) < _INT_DIGITS else int(Decimal(digits))
    return unscaled // 10**-scale if scale < 0 else unscaled


def render_double(value: str) -> str:
    """With a point or an exponent, or a reader would take it for an integer; NaN and the infinities are strings."""
    if not value.lstrip("-")[0].isdigit():
        return render_text(value)
    return value if "." in value or "e" in value else f"{value}.0"


def _render_java_year(year: int, value: str) -> str:
    if value.endswith("BC"):
        year = 1 - year
    return f"-{-year:04}" if year < 0 else f"+{year}" if year > 9999 else f"{year:04}"


def _render_base64_number(number: int) -> str:
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return render_base64(number.to_bytes(size, "big", signed=True))


def render_base64(data: bytes) -> str:
    """A JSON string."""
    return f'"{base64.b64encode(data).decode()}"'
