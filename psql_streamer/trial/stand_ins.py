"""Values that stand in for others: of the same type and shape, and telling nothing of them.

A digit stands in for a digit and a letter for a letter. What is neither stays: signs, points, quotes, the @ of an
address. What a value stands in for depends on it and on a secret that is made for one capture and then forgotten.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from ipaddress import ip_network
from random import Random

from psql_streamer.pgtype import JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID

_STAND_IN_ATTEMPTS = 200
_LONGER_BY = 6
_LOWER, _UPPER, _HEX = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789abcdef"
_OTHER_LOWER, _OTHER_UPPER = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ", "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞ"
_INTEGER_LIMITS = (32767, 2147483647, 4294967295, 9223372036854775807, 18446744073709551615)
_LAST_EXPONENTS = (-324, -45, 38, 308)  # of float8 and float4
_DIGITS_OF_MONEY = len("9223372036854775807")
_LEAP_DAY, _DAYS_OF_400_YEARS = (2, 29), 146097

_MOMENT = re.compile(r"(\d{4,})-\d\d-\d\d|(?<![-+\d:])(\d\d):\d\d:\d\d(?:\.(\d+))?")
_MOMENT_PARTS = re.compile(
    r"(?:(\d{4,})-(\d\d)-(\d\d))? ?(?:(\d\d):(\d\d):(\d\d(?:\.\d+)?)([-+]\d\d(?::\d\d){0,2})?)?( BC)?"
)
_INTERVAL = re.compile(r"(\d+):\d\d:\d\d|\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_JSON = re.compile(rf'"((?:[^"\\]|\\.)*)"(\s*:)?|({_NUMBER.pattern})|true|false')
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_HSTORE = re.compile(rf"({_QUOTED}\s*=>\s*)({_QUOTED})")
_ARRAY_ELEMENT = re.compile(rf'({_QUOTED})|[^{{}},;"]+')
_ARRAY_BOX = re.compile(r'()[^{};"]+')
_FIELD = re.compile(r'("(?:[^"\\]|\\.|"")*")|[^,()"]+')
_BOUND = r'"(?:[^"\\]|\\.|"")*"|[^",\[\]()]*'
_RANGE = re.compile(rf"([\[(])({_BOUND}),({_BOUND})([\])])")
_RANGES = re.compile(rf"{{?(?:{_RANGE.pattern},?)*}}?|empty")
_NO_NUMBERS = ("", "NaN", "Infinity", "-Infinity", "infinity", "-infinity")
_TAG = re.compile(r"(<[^>]*>|&\w+;)")

_Make = Callable[[str, Random], str]


class StandIns:
    """Equal values have equal stand-ins, whatever column they are in, and different values different ones, as long as
    their type has as many.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._made: dict[tuple[str, str], str] = {}
        self._taken: dict[str, set[str]] = defaultdict(set)
        self._attempts: dict[tuple[_Make, str], int] = defaultdict(lambda: _STAND_IN_ATTEMPTS)

    def replace_text(self, text: str, kind: PgType | None) -> str:
        """The stand-in of a text form."""
        if kind is not None and kind.element is not None:
            return self._replace_array(text, kind.element)
        if kind is not None and kind.attributes:
            return self._replace_composite(text, kind)
        if kind is not None and kind.logical is Logical.JSON:
            return self._replace_json(text)
        if kind is not None and kind.logical is Logical.HSTORE:
            return _HSTORE.sub(lambda found: found[1] + self._replace_quoted(found[2], None), text)
        group, make = _choose_maker(kind)
        return self._find(text, group, make)

    def replace_uuid(self, text: str) -> str:
        """The stand-in of a UUID."""
        return self._find(text, "uuid", _draw_uuid)

    def make_bytes(self, size: int) -> bytes:
        """So many bytes."""
        return secrets.token_bytes(size)

    def _find(self, text: str, group: str, make: _Make) -> str:
        key = (group, text)
        if key not in self._made:
            self._made[key] = self._make_stand_in(text, group, make)
            self._taken[group].add(self._made[key])
        return self._made[key]

    def _make_stand_in(self, text: str, group: str, make: _Make) -> str:
        """One that stands in for nothing else. Where there are too few, it is a character longer, or a date farther
        away.
        """
        for like, draw in _list_ways(text, group, make):
            found = self._draw_free(text, like, group, draw)
            if found is not None:
                return found
        return make(text, self._make_random(group, text, 0))

    def _draw_free(self, text: str, like: str, group: str, make: _Make) -> str | None:
        taken, shape = self._taken[group], (make, _find_shape(like))
        for attempt in range(self._attempts[shape]):
            found = make(like, self._make_random(group, text, attempt))
            if found not in taken:
                return found
        # Few of this shape are left, and many values may follow: the next one does not search for them as long.
        self._attempts[shape] = max(1, self._attempts[shape] * 19 // 20)
        return None

    def _make_random(self, group: str, text: str, attempt: int) -> Random:
        given = f"{group}\0{attempt}\0{text}".encode("utf-8", "surrogateescape")
        return Random(hmac.digest(self._secret, given, "sha256"))  # noqa: S311 - the secret is in the seed

    def _replace_quoted(self, quoted: str, kind: PgType | None) -> str:
        inner = re.sub(r"\\(.)|\"\"", lambda found: found[1] or '"', quoted[1:-1], flags=re.DOTALL)
        return _quote_element(self.replace_text(inner, kind))

    def _replace_array(self, text: str, element: PgType) -> str:
        bounds, braces, elements = text.partition("={") if text.startswith("[") else ("", "", text)

        def other(found: re.Match[str]) -> str:
            if found[1]:
                return self._replace_quoted(found[1], element)
            if found[0] == "NULL":
                return found[0]
            made = self.replace_text(found[0], element)
            return made if element.name == "box" else _quote_if_needed(made)

        # Boxes have commas within and semicolons between them.
        return bounds + braces + (_ARRAY_BOX if element.name == "box" else _ARRAY_ELEMENT).sub(other, elements)

    def _replace_composite(self, text: str, kind: PgType) -> str:
        """Fields are told by the commas before them."""
        made, place, at = "", 0, 0
        for found in _FIELD.finditer(text):
            between = text[at : found.start()]
            place += between.count(",")
            attribute = kind.attributes[min(place, len(kind.attributes) - 1)].type
            other = (
                self._replace_quoted(found[1], attribute)
                if found[1]
                else _quote_if_needed(self.replace_text(found[0], attribute))
            )
            made += between + other
            at = found.end()
        return made + text[at:]

    def _replace_json(self, text: str) -> str:
        """With the names of its members."""

        def other(found: re.Match[str]) -> str:
            string, colon, number = found[1], found[2], found[3]
            if colon:
                return found[0]
            if string is not None:
                parts = re.split(r"(\\u[0-9a-fA-F]{4}|\\.)", string)
                return (
                    '"'
                    + "".join(self.replace_text(one, None) if at % 2 == 0 else one for at, one in enumerate(parts))
                    + '"'
                )
            if number is not None:
                return self._find(number, *(("integer", _draw_integer) if number.lstrip("-").isdigit() else _NUMERIC))
            return "true" if self._find(found[0][0], *_BOOLEAN) == "t" else "false"

        return _JSON.sub(other, text)


def _list_ways(text: str, group: str, make: _Make) -> Iterator[tuple[str, _Make]]:
    """What a stand-in may be like and what draws it, one after the other until there is one that is free."""
    yield text, make
    if group == "moment":
        yield text, _draw_distant_moment
    elif group == "integer":
        yield from ((like, make) for like in _list_other_lengths(text))
    elif group == "text":
        for longer in range(1, _LONGER_BY):
            yield text + text[-1:] * longer, make


def _list_other_lengths(text: str) -> Iterator[str]:
    """Integers with more digits, or fewer, that are of the same type."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits.isdigit():
        limit = _find_limit(int(digits) - bool(sign), len(digits))
        longer = range(len(digits) + 1, len(digits) + _LONGER_BY)
        for length in (*longer, *range(len(digits) - 1, 0, -1)):
            if 10 ** (length - 1) <= limit:
                yield f"{sign}1{'0' * (length - 1)}"


def _find_shape(text: str) -> str:
    """Equal for texts whose stand-ins are the same ones."""
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", text))


def _quote_element(text: str) -> str:
    """An element of an array, or a field of a row."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quote_if_needed(text: str) -> str:
    return _quote_element(text) if text.upper() == "NULL" or re.search(r"[{}(),;\"\\\s]", text) else text


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


def _draw_integer(text: str, draw: Random) -> str:
    """As long, and within the smallest type that holds it."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits.isdigit():
        return _draw_characters(text, draw)
    magnitude = int(digits) - bool(sign)
    limit = _find_limit(magnitude, len(digits))
    least = 10 ** (len(digits) - 1) if len(digits) > 1 or sign else 0
    return f"{sign}{draw.randint(least, max(least, min(limit, 10 ** len(digits) - 1)))}"


def _find_limit(magnitude: int, digits: int) -> int:
    """The largest integer of the smallest type that holds one."""
    return next((one for one in _INTEGER_LIMITS if magnitude <= one), 10**digits)


def _draw_number(text: str, draw: Random) -> str:
    """The exponent stays. NaN and Infinity stay, too."""
    mantissa, mark, exponent = text.partition("e")
    if not mark or int(exponent) not in _LAST_EXPONENTS:
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
_draw_distant_moment = partial(_draw_moment_between, date(1600, 1, 1), date(4600, 1, 1))


def _draw_interval(text: str, draw: Random) -> str:
    def other(found: re.Match[str]) -> str:
        if found[1]:
            digits = _draw_characters(found[1], draw)
            hours = "1" + digits[1:] if len(digits) >= len("2562047788") else digits  # as many may be the most
            return f"{hours}:{draw.randrange(60):02}:{draw.randrange(60):02}"
        most = len("178000000")  # years; a number as long may be the largest
        return "10" + _draw_characters(found[0][2:], draw) if len(found[0]) >= most else _draw_digits(found[0], draw)

    return _INTERVAL.sub(other, text)


def _draw_uuid(text: str, draw: Random) -> str:
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
    number = _NUMBER.fullmatch(text)
    make = _draw_characters if number is None else _draw_integer if text.lstrip("-").isdigit() else _draw_number
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
    return (middle, Decimal(text), "") if _NUMBER.fullmatch(text) else (middle, none, text)


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
    return _NUMBER.sub(lambda found: _draw_number(found[0], draw), text)


def _draw_vector(text: str, draw: Random) -> str:
    return _NUMBER.sub(lambda found: _draw_integer(found[0], draw), text)


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


_BOOLEAN: tuple[str, _Make] = ("boolean", _draw_boolean)
_NUMERIC: tuple[str, _Make] = ("numeric", _draw_number)
_BY_LOGICAL: Mapping[Logical, tuple[str, _Make]] = {
    Logical.BIT: ("bit", _draw_bits),
    Logical.VARBIT: ("bit", _draw_bits),
    Logical.BOOLEAN: _BOOLEAN,
    Logical.BYTES: ("bytes", _draw_bytes),
    Logical.FLOAT4: _NUMERIC,
    Logical.FLOAT8: _NUMERIC,
    Logical.NUMERIC: _NUMERIC,
    Logical.INTERVAL: ("interval", _draw_interval),
    Logical.MONEY: ("money", _draw_money),
    Logical.UUID: ("uuid", _draw_uuid),
    Logical.XML: ("xml", _draw_markup),
    **dict.fromkeys((Logical.INT2, Logical.INT4, Logical.INT8, Logical.OID, Logical.XID), ("integer", _draw_integer)),
    **dict.fromkeys((Logical.DATE, Logical.TIME, Logical.TIMETZ), ("moment", _draw_moment)),
    **dict.fromkeys((Logical.TIMESTAMP, Logical.TIMESTAMPTZ), ("moment", _draw_moment)),
}
_BY_NAME: Mapping[str, tuple[str, _Make]] = {
    **dict.fromkeys(("inet", "cidr"), ("address", _draw_address)),
    **dict.fromkeys(("macaddr", "macaddr8"), ("mac", _draw_hexadecimal)),
    **dict.fromkeys(("point", "lseg", "path", "box", "polygon", "line", "circle"), ("figure", _draw_figure)),
    **dict.fromkeys(("int2vector", "oidvector"), ("vector", _draw_vector)),
}


def _choose_maker(kind: PgType | None) -> tuple[str, _Make]:
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
        return "integer", _draw_integer
    return _BY_LOGICAL.get(kind.logical, ("text", _draw_characters))
