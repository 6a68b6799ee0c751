"""Values of a part's stats, which may be of any type: what metrics can show of them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether a metric can have this value."""
    if not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def select_named(value: object) -> Mapping[str, Any]:
    """What stands under names; nothing where there are none."""
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if isinstance(name, str)}


def select_numbers(value: object) -> Mapping[str, float]:
    """The same of numbers."""
    return {name: one for name, one in select_named(value).items() if is_number(one)}
