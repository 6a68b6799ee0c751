"""Character sets by the number of their collation (information_schema.COLLATIONS, the same in MySQL and MariaDB)."""

from __future__ import annotations

BINARY = 63

_SETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "utf8mb4": ("utf-8", (45, 46, *range(224, 248), *range(255, 324))),
    "utf8mb3": ("utf-8", (33, 76, 83, *range(192, 216), 223)),
    "ascii": ("utf-8", (11, 65)),
    "latin1": ("cp1252", (5, 8, 15, 31, 47, 48, 49, 94)),
    "binary": ("", (63,)),
}
"""MySQL's name -> Python's codec and the collations."""

CODEC_OF = {collation: codec for codec, collations in _SETS.values() for collation in collations}
CHARSET_OF = {collation: name for name, (_, collations) in _SETS.items() for collation in collations}
