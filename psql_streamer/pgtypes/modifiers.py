"""Type modifiers (pg_attribute.atttypmod), of which -1 stands for none."""

from __future__ import annotations

from typing import NamedTuple

VARHDRSZ = 4
"""What lengths and numeric's modifier are too large by (PostgreSQL source, src/include/c.h)."""


class NumericModifier(NamedTuple):
    """precision: of all digits. scale: of those behind the point, which may be negative or above the precision."""

    precision: int
    scale: int


def decode_numeric_modifier(typmod: int) -> NumericModifier:
    """What a modifier of numeric, at least VARHDRSZ, holds.

    The precision is in its upper half and the scale, 11 bits with sign, in its lower (numeric.c, make_numeric_typmod).
    """
    return NumericModifier(((typmod - VARHDRSZ) >> 16) & 0xFFFF, (((typmod - VARHDRSZ) & 0x7FF) ^ 1024) - 1024)
