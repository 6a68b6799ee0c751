"""Character sets by the number of their collation (information_schema.COLLATIONS of MySQL and MariaDB).

MariaDB's collations from 1024 on are those of before with NOPAD; its uca1400 ones have a range for each set.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import NamedTuple

BINARY = 63


class CharacterSet(NamedTuple):
    """name: the server's. codec: Python's. most: bytes that a character takes at most."""

    name: str
    codec: str
    most: int
    collations: tuple[range | int, ...]


LATIN1 = "mysql-latin1"
"""Windows-1252, with the control characters of Latin-1 where that has nothing (MySQL's manual, "West European Character
Sets").
"""

_SETS = (
    CharacterSet(
        "utf8mb4",
        "utf-8",
        4,
        (45, 46, range(224, 248), range(255, 324), range(608, 611), 1069, 1070, 1248, 1270, range(2304, 2504)),
    ),
    CharacterSet(
        "utf8mb3",
        "utf-8",
        3,
        (33, 76, 83, range(192, 216), 223, range(576, 579), 1057, 1107, 1216, 1238, range(2048, 2248)),
    ),
    CharacterSet("ascii", "ascii", 1, (11, 65, 1035, 1089)),
    CharacterSet("latin1", LATIN1, 1, (5, 8, 15, 31, 47, 48, 49, 94, 1032, 1071)),
    CharacterSet("latin2", "iso8859-2", 1, (2, 9, 21, 27, 77, 1033, 1101)),
    CharacterSet("latin5", "iso8859-9", 1, (30, 78, 1054, 1102)),
    CharacterSet("latin7", "iso8859-13", 1, (20, 41, 42, 79, 1065, 1103)),
    CharacterSet("cp1250", "cp1250", 1, (26, 34, 44, 66, 99, 1050, 1090)),
    CharacterSet("cp1251", "cp1251", 1, (14, 23, 50, 51, 52, 1074, 1075)),
    CharacterSet("cp1256", "cp1256", 1, (57, 67, 1081, 1091)),
    CharacterSet("cp1257", "cp1257", 1, (29, 58, 59, 1082, 1083)),
    CharacterSet("cp850", "cp850", 1, (4, 80, 1028, 1104)),
    CharacterSet("cp852", "cp852", 1, (40, 81, 1064, 1105)),
    CharacterSet("cp866", "cp866", 1, (36, 68, 1060, 1092)),
    CharacterSet("greek", "iso8859-7", 1, (25, 70, 1049, 1094)),
    CharacterSet("hebrew", "iso8859-8", 1, (16, 71, 1040, 1095)),
    CharacterSet("hp8", "hp-roman8", 1, (6, 72, 1030, 1096)),
    CharacterSet("koi8r", "koi8-r", 1, (7, 74, 1031, 1098)),
    CharacterSet("koi8u", "koi8-u", 1, (22, 75, 1046, 1099)),
    CharacterSet("macce", "mac-latin2", 1, (38, 43, 1062, 1067)),
    CharacterSet("macroman", "mac-roman", 1, (39, 53, 1063, 1077)),
    CharacterSet("tis620", "tis-620", 1, (18, 89, 1042, 1113)),
    CharacterSet("big5", "big5", 2, (1, 84, 1025, 1108)),
    CharacterSet("cp932", "cp932", 2, (95, 96, 1119, 1120)),
    CharacterSet("euckr", "cp949", 2, (19, 85, 1043, 1109)),
    CharacterSet("gb2312", "gb2312", 2, (24, 86, 1048, 1110)),
    CharacterSet("gbk", "gbk", 2, (28, 87, 1052, 1111)),
    CharacterSet("gb18030", "gb18030", 4, (248, 249, 250)),
    CharacterSet("sjis", "shift-jis", 2, (13, 88, 1037, 1112)),
    CharacterSet("ujis", "euc-jp", 3, (12, 91, 1036, 1115)),
    CharacterSet(
        "ucs2",
        "utf-16-be",
        2,
        (35, 90, range(128, 152), 159, range(640, 643), 1059, 1114, 1152, 1174, range(2560, 2760)),
    ),
    CharacterSet(
        "utf16", "utf-16-be", 4, (54, 55, range(101, 125), range(672, 675), 1078, 1079, 1125, 1147, range(2816, 3016))
    ),
    CharacterSet("utf16le", "utf-16-le", 4, (56, 62, 1080, 1086)),
    CharacterSet(
        "utf32",
        "utf-32-be",
        4,
        (60, 61, range(160, 184), range(736, 739), 1084, 1085, 1184, 1206, range(3072, 3272)),
    ),
)

BY_COLLATION: dict[int, CharacterSet] = {
    number: one for one in _SETS for part in one.collations for number in ((part,) if isinstance(part, int) else part)
}
"""Character sets by collation. Python does not have armscii8, dec8, eucjpms, geostd8, keybcs2 and swe7."""


def decode_characters(text: bytes, codec: str) -> str:
    """As the server converts it into utf8mb4: a code without a character is what the server puts in its place.

    UnicodeDecodeError when bytes are no code of the character set.
    """
    if codec == LATIN1:
        return codecs.charmap_decode(text, "strict", _build_latin1_table())[0]
    try:
        found = text.decode(codec)
    except UnicodeDecodeError:
        found = _decode_codes(text, codec)
    return found.translate(_OTHERWISE[codec]) if codec in _OTHERWISE else found


def has_ascii(codec: str) -> bool:
    """Whether bytes below 128 are ASCII, wherever they stand alone."""
    return not codec.startswith("utf-")


_OTHERWISE = {
    codec: str.maketrans(python, server)
    for codec, python, server in (
        ("cp866", "\u2116\u00a4", "\u207f\u00b2"),
        ("euc-jp", "\uff3c", "\\"),
        ("gb18030", "\ue7c7\u1e3f", "\u1e3f\ue7c7"),
        ("iso8859-7", "\u2018\u2019", "\u02bd\u02bc"),
        ("iso8859-8", "\u00af", "\u203e"),
        ("koi8-u", "\u2219", "\u2022"),
        ("shift-jis", "\uff3c", "\\"),
    )
}
"""Characters that the server has where Python has others, found by converting all codes of each set on the servers."""


def _decode_codes(text: bytes, codec: str) -> str:
    """A text with codes that Python does not have, code by code."""
    if codec.startswith("utf-"):
        return text.decode(codec)
    found, at = [], 0
    while at < len(text):
        size = _measure_code(text, at, codec)
        code = text[at : at + size]
        try:
            found.append(code.decode(codec))
        except UnicodeDecodeError:
            if len(code) < size:
                raise
            found.append(_decode_missing_code(code, codec))
        at += size
    return "".join(found)


def _measure_code(text: bytes, at: int, codec: str) -> int:
    """Bytes of the code that begins there, as the server counts them (MySQL source, strings/ctype-*.c)."""
    lead = text[at]
    if codec not in _MULTIBYTE or lead < 0x80 or (codec in _HALF_WIDTH and 0xA1 <= lead <= 0xDF):
        return 1
    if codec == "gb18030" and text[at + 1 : at + 2].isdigit():
        return 4
    return 3 if codec == "euc-jp" and lead == _JIS_X_0212 else 2


_MULTIBYTE = {one.codec for one in _SETS if one.most > 1}
_HALF_WIDTH = {"cp932", "shift-jis"}
_JIS_X_0212 = 0x8F


def _decode_missing_code(code: bytes, codec: str) -> str:
    """What the server has for a code that Python does not have; `?` where it has none either."""
    if codec == "euc-jp" and code[-2] >= _EUC_OF_USERS and code[-1] > 0xA0:
        place = (code[-2] - _EUC_OF_USERS) * 94 + code[-1] - 0xA1
        return chr(0xE000 + place + (940 if len(code) == 3 else 0))
    if codec == "tis-620":
        return "\ufffd"
    return _BIG5_OF_ETEN.get(code, "?") if codec == "big5" else "?"


_EUC_OF_USERS = 0xF5
"""The first of ten rows for characters of users, in JIS X 0208 and again in JIS X 0212."""

_BIG5_OF_ETEN = {bytes([0xF9, 0xD6 + at]): character for at, character in enumerate("碁銹裏墻恒粧嫺")}


@lru_cache(maxsize=1)
def _build_latin1_table() -> str:
    return "".join(_decode_latin1(number) for number in range(256))


def _decode_latin1(number: int) -> str:
    try:
        return bytes([number]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(number)
