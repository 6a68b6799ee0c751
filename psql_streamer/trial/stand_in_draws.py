"""What makes a stand-in for a value, by the type of the value. See stand_ins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from ipaddress import ip_network
from random import Random

from psql_streamer.pgtype import JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID

_LOWER, _UPPER, _HEX = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789abcdef"
_OTHER_LOWER, _OTHER_UPPER = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ", "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞ"
_INTEGER_LIMITS = (32767, 2147483647, 4294967295, 9223372036854775807, 18446744073709551615)
LONGEST_INTEGER = len(str(_INTEGER_LIMITS[-1]))
"""Digits of the integers that a type limits. JSON and numeric have longer ones, of more digits than int() takes."""

_LAST_EXPONENTS = ("-324", "-45", "38", "308")  # of float8 and float4
_DIGITS_OF_MONEY = len("9223372036854775807")
_LEAP_DAY, _DAYS_OF_400_YEARS = (2, 29), 146097
_MOMENT = re.compile(r"(\d{4,})-\d\d-\d\d|(?<![-+\d:])(\d\d):\d\d:\d\d(?:\.(\d+))?")
_MOMENT_PARTS = re.compile(
    r"(?:(\d{4,})-(\d\d)-(\d\d))? ?(?:(\d\d):(\d\d):(\d\d(?:\.\d+)?)([-+]\d\d(?::\d\d){0,2})?)?( BC)?"
)
_INTERVAL = re.compile(r"(\d+):\d\d:\d\d|\d+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_BOUND = r'"(?:[^"\\]|\\.|"")*"|[^",\[\]()]*'
_RANGE = re.compile(rf"([\[(])({_BOUND}),({_BOUND})([\])])")
_RANGES = re.compile(rf"{{?(?:{_RANGE.pattern},?)*}}?|empty")
_NO_NUMBERS = ("", "NaN", "Infinity", "-Infinity", "infinity", "-infinity")
_TAG = re.compile(r"(<[^>]*>|&\w+;)")

Make = Callable[[str, Random], str]
"""Draws another text like the given one."""


def choose_maker(kind: PgType | None) -> tuple[str, Make]:
    """Which values must have different stand-ins, and what makes one."""
    if kind is None:
        return "text", _draw_characters
    if kind.labels:
        return f"enum {kind.oid}", lambda _, draw: draw.choice(kind.labels)
    name = BY_OID[kind.base_oid].name if kind.base_oid in BY_OID else kind.name  # a domain has a name of its own
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.endswith("range"):
        return "range", _draw_range
    if kind.form is JsonForm.INTEGER:
        return "integer", draw_integer
    return _BY_LOGICAL.get(kind.logical, ("text", _draw_characters))


def _draw_characters(text: str, draw: Random) -> str:
    return "".join(_draw_character(one, draw) for one in text)


def _draw_character(one: str, draw: Random) -> str:
    if one.isascii():
        if one.isdigit():
            return draw.choice("0123456789")
        return draw.choice(_LOWER if one.islower() else _UPPER) if one.isalpha() else one
    if one >= "\u2e80" and one.isalpha():
        return chr(draw.randrange(0x4E00, 0x9FA5))
    return draw.choice(_OTHER_UPPER if one.isupper() else _OTHER_LOWER) if one.isalpha() else one


def _draw_digits(text: str, draw: Random) -> str:
    """As many, and no zero in front where there was none."""
    rest = "".join(draw.choice("0123456789") for _ in text[1:])
    return (text[:1] if text.startswith("0") else draw.choice("123456789")) + rest


def draw_integer(text: str, draw: Random) -> str:
    """As long, and within the smallest type that holds it."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits.isdigit():
        return _draw_characters(text, draw)
    if len(digits) > LONGEST_INTEGER:
        return sign + _draw_digits(digits, draw)
    magnitude = int(digits) - bool(sign)
    limit = find_limit(magnitude, len(digits))
    least = 10 ** (len(digits) - 1) if len(digits) > 1 or sign else 0
    return f"{sign}{draw.randint(least, max(least, min(limit, 10 ** len(digits) - 1)))}"


def find_limit(magnitude: int, digits: int) -> int:
    """The largest integer of the smallest type that holds one."""
    return next((one for one in _INTEGER_LIMITS if magnitude <= one), 10**digits)


def _draw_number(text: str, draw: Random) -> str:
    """The exponent stays. NaN and Infinity stay, too."""
    mantissa, mark, exponent = text.partition("e")
    if not mark or exponent.lstrip("+") not in _LAST_EXPONENTS:
        return re.sub(r"\d+", lambda found: _draw_number_part(found, mantissa, draw), mantissa) + mark + exponent
    if exponent.startswith("-"):
        return "9".join(re.split(r"\d", _draw_characters(mantissa, draw), maxsplit=1)) + mark + exponent
    return (
        re.sub(r"\d(\.\d)?", lambda found: "1.0" if found[1] else "1", _draw_characters(mantissa, draw), count=1)
        + mark
        + exponent
    )


def _draw_number_part(found: re.Match[str], text: str, draw: Random) -> str:
    behind_point = found.start() > 0 and text[found.start() - 1] == "."
    return (
        _draw_characters(found[0], draw)
        if behind_point
        else found[0]
        if found[0] == "0"
        else _draw_digits(found[0], draw)
    )


def _draw_moment_between(first: date, end: date, text: str, draw: Random) -> str:
    """A date before the end, a time of a day. The zone stays."""

    def other(found: re.Match[str]) -> str:
        if found[1]:
            day = first + timedelta(days=draw.randrange((end - first).days))
            if (day.month, day.day) == _LEAP_DAY and text.endswith("BC"):  # 2029 BC has one, 2028 BC has none
                day -= timedelta(days=1)
            return ("1" + found[1][1:-4] if len(found[1]) > len("2000") else "") + day.isoformat()
        clock = f"{draw.randrange(24):02}:{draw.randrange(60):02}:{draw.randrange(60):02}"
        fraction = "" if not found[3] else "." + _draw_characters(found[3][:-1], draw) + draw.choice("123456789")
        return clock + fraction

    return _MOMENT.sub(other, text)


_draw_moment = partial(_draw_moment_between, date(1970, 1, 1), date(2036, 1, 1))
# Of the Gregorian calendar, and before Christ not earlier than PostgreSQL's timestamps begin.
draw_distant_moment = partial(_draw_moment_between, date(1600, 1, 1), date(4600, 1, 1))


def _draw_interval(text: str, draw: Random) -> str:
    def other(found: re.Match[str]) -> str:
        if found[1]:
            digits = _draw_characters(found[1], draw)
            hours = "1" + digits[1:] if len(digits) >= len("2562047788") else digits  # as many may be the most
            return f"{hours}:{draw.randrange(60):02}:{draw.randrange(60):02}"
        most = len("178000000")  # years; a number as long may be the largest
        return "10" + _draw_characters(found[0][2:], draw) if len(found[0]) >= most else _draw_digits(found[0], draw)

    return _INTERVAL.sub(other, text)


def draw_uuid(text: str, draw: Random) -> str:
    """Version and variant stay."""
    kept = (14, 19)
    return "".join(draw.choice(_HEX) if one in _HEX and at not in kept else one for at, one in enumerate(text.lower()))


def _draw_hexadecimal(text: str, draw: Random) -> str:
    return re.sub(r"[0-9a-f]", lambda _: draw.choice(_HEX), text)


def _draw_bytes(text: str, draw: Random) -> str:
    return text[:2] + _draw_hexadecimal(text[2:], draw) if text.startswith("\\x") else _draw_characters(text, draw)


def _draw_address(text: str, draw: Random) -> str:
    """Of a network or a host. Zeros stay, and so does the length of the prefix: what is a network stands for one."""
    address, slash, prefix = text.partition("/")
    groups, colon, last = address.rpartition(":")
    octets = last if "." in last else ""  # the end of a mapped address is written as IPv4 writes it
    made = (
        re.sub(r"[0-9a-f]+", lambda found: _draw_group(found[0], draw), groups + colon + last.removesuffix(octets))
        + re.sub(r"[1-9]\d*", lambda _: str(draw.randint(1, 254)), octets)
        + slash
        + prefix
    )
    return made if not slash or _is_network(made) or not _is_network(text) else str(ip_network(made, strict=False))


def _draw_group(group: str, draw: Random) -> str:
    return group if group == "0" else draw.choice(_HEX[1:]) + _draw_hexadecimal(group[1:], draw)


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def _draw_markup(text: str, draw: Random) -> str:
    """With its tags, but not with the values of attributes."""
    parts = _TAG.split(text)
    return "".join(
        _draw_characters(part, draw)
        if at % 2 == 0
        else re.sub(r"([\"']).*?\1", lambda found: found[1] + _draw_characters(found[0][1:-1], draw) + found[1], part)
        for at, part in enumerate(parts)
    )


def _draw_range(text: str, draw: Random) -> str:
    """Bounds in their order."""

    def other(found: re.Match[str]) -> str:
        made = [_draw_bound(bound, draw) for bound in (found[2], found[3])]
        low, high = sorted(made, key=_find_place) if all(made) else made
        return f"{found[1]}{low},{high}{found[4]}"

    return _RANGE.sub(other, text) if _RANGES.fullmatch(text) else _draw_characters(text, draw)


def _draw_bound(bound: str, draw: Random) -> str:
    text, quote = (bound[1:-1], '"') if bound.startswith('"') else (bound, "")
    if text in _NO_NUMBERS:
        return bound
    if _MOMENT.match(text):
        return quote + _draw_moment(text, draw) + quote
    number = NUMBER.fullmatch(text)
    make = _draw_characters if number is None else draw_integer if text.lstrip("-").isdigit() else _draw_number
    return quote + make(text, draw) + quote


def _find_place(bound: str) -> tuple[Decimal, Decimal, str]:
    """Where a bound stands among others of its kind. NaN is behind infinity."""
    text, middle, none = bound.strip('"'), Decimal(0), Decimal(0)
    if text.lower() in ("infinity", "-infinity"):
        return Decimal(text), none, ""
    if text == "NaN":
        return Decimal("Infinity"), Decimal(1), ""
    if moment := _MOMENT_PARTS.fullmatch(text):
        return middle, _count_seconds(moment), ""
    return (middle, Decimal(text), "") if NUMBER.fullmatch(text) else (middle, none, text)


def _count_seconds(moment: re.Match[str]) -> Decimal:
    """In the order of moments, whatever year and zone they are in."""
    year, month, day, hours, minutes, seconds, zone = moment.group(1, 2, 3, 4, 5, 6, 7)
    days = 0
    if year:
        astronomical = 1 - int(year) if moment[8] else int(year)
        cycles, within = divmod(astronomical, 400)
        days = cycles * _DAYS_OF_400_YEARS + date(400 + within, int(month), int(day)).toordinal()
    sign, *offset = (1, 0) if zone is None else (int(zone[0] + "1"), *map(int, zone[1:].split(":")))
    east = sum(part * unit for part, unit in zip(offset, (3600, 60, 1), strict=False))
    return 86400 * days + 3600 * int(hours or 0) + 60 * int(minutes or 0) + Decimal(seconds or 0) - sign * east


def _draw_figure(text: str, draw: Random) -> str:
    """Points: a line must not have zeros alone."""
    return NUMBER.sub(lambda found: _draw_number(found[0], draw), text)


def _draw_vector(text: str, draw: Random) -> str:
    return NUMBER.sub(lambda found: draw_integer(found[0], draw), text)


def _draw_money(text: str, draw: Random) -> str:
    """As the locale writes it. Where there are as many digits as in the largest amount, the first one is 1."""
    digits = re.sub(r"\D", "", text)
    drawn = iter(
        "1" + _draw_digits(digits, draw)[1:] if len(digits) >= _DIGITS_OF_MONEY else _draw_digits(digits, draw)
    )
    return re.sub(r"\d", lambda _: next(drawn), text)


def _draw_bits(text: str, draw: Random) -> str:
    return "".join(draw.choice("01") for _ in text)


def _draw_boolean(_: str, draw: Random) -> str:
    return draw.choice("tf")


BOOLEAN: tuple[str, Make] = ("boolean", _draw_boolean)
NUMERIC: tuple[str, Make] = ("numeric", _draw_number)
_BY_LOGICAL: Mapping[Logical, tuple[str, Make]] = {
    Logical.BIT: ("bit", _draw_bits),
    Logical.VARBIT: ("bit", _draw_bits),
    Logical.BOOLEAN: BOOLEAN,
    Logical.BYTES: ("bytes", _draw_bytes),
    Logical.FLOAT4: NUMERIC,
    Logical.FLOAT8: NUMERIC,
    Logical.NUMERIC: NUMERIC,
    Logical.INTERVAL: ("interval", _draw_interval),
    Logical.MONEY: ("money", _draw_money),
    Logical.UUID: ("uuid", draw_uuid),
    Logical.XML: ("xml", _draw_markup),
    **dict.fromkeys((Logical.INT2, Logical.INT4, Logical.INT8, Logical.OID, Logical.XID), ("integer", draw_integer)),
    **dict.fromkeys((Logical.DATE, Logical.TIME, Logical.TIMETZ), ("moment", _draw_moment)),
    **dict.fromkeys((Logical.TIMESTAMP, Logical.TIMESTAMPTZ), ("moment", _draw_moment)),
}
_BY_NAME: Mapping[str, tuple[str, Make]] = {
    **dict.fromkeys(("inet", "cidr"), ("address", _draw_address)),
    **dict.fromkeys(("macaddr", "macaddr8"), ("mac", _draw_hexadecimal)),
    **dict.fromkeys(("point", "lseg", "path", "box", "polygon", "line", "circle"), ("figure", _draw_figure)),
    **dict.fromkeys(("int2vector", "oidvector"), ("vector", _draw_vector)),
}
