"""Numbers as JSON has them, with each digit that they have."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
from msgspec import Raw

_FEW_BYTES = 1_000
"""Of an integer that Python turns into text. It refuses to do so for more than 4,300 digits."""


MOST_SCALE = 100_000
"""A decimal with a larger scale than this has as many digits, whatever its bytes are."""


def render_decimal(unscaled: bytes, scale: int) -> Raw:
    """An exact JSON number. unscaled: an integer in two's complement, big endian. ValueError where there is none."""
    if not unscaled or abs(scale) > MOST_SCALE:
        raise ValueError("a decimal has no bytes, or too large a scale")
    number = int.from_bytes(unscaled, "big", signed=True)
    digits = str(abs(number)) if len(unscaled) < _FEW_BYTES else str(Decimal(abs(number)))
    if scale > 0:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    elif scale < 0 and number:
        digits += "0" * -scale
    return Raw(f"-{digits}".encode() if number < 0 else digits.encode())


def convert_double(number: float) -> float | str:
    """A number, or the name of what is none, as Debezium's JSON has it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def convert_float(number: float) -> float | str:
    """The same for a number of 4 bytes: with as few digits as tell it from other numbers of 4 bytes."""
    return float(str(np.float32(number))) if math.isfinite(number) else convert_double(number)
