"""What a number may be ends where the libraries that count with it end: a file that `validate` accepts starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from tests.unit.test_config_reference import SECTIONS


def numbers() -> Iterator[tuple[type[BaseModel], str]]:
    """Every option that is a number, by its key, with the section's class."""
    for options in SECTIONS.values():
        for name, field in options.model_fields.items():
            if {int, float} & {field.annotation, *get_args(field.annotation)}:
                yield options, field.alias or name


@pytest.mark.parametrize(("options", "key"), list(numbers()), ids=lambda given: getattr(given, "__name__", given))
@pytest.mark.parametrize("value", [10**30, f"1{'0' * 30}h", f"1{'0' * 30}TB", f"{'9' * 400}h"])
def test_every_number_has_an_upper_bound(options: type[BaseModel], key: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        options.model_validate({key: value})
    assert key in [error["loc"][0] for error in refused.value.errors()]


@pytest.mark.parametrize(("options", "key"), list(numbers()), ids=lambda given: getattr(given, "__name__", given))
@pytest.mark.parametrize("value", [-1, "-1s"])
def test_a_lower_bound_that_is_told_is_allowed_itself(options: type[BaseModel], key: str, value: object) -> None:
    errors = errors_at(options, key, value)
    for bound in [error["ctx"]["ge"] for error in errors if error["type"] == "greater_than_equal"]:
        assert [] in (errors_at(options, key, bound), errors_at(options, key, f"{bound}s"))


def errors_at(options: type[BaseModel], key: str, value: object) -> list[Any]:
    """What is wrong with a value of an option."""
    try:
        options.model_validate({key: value})
    except ValidationError as refused:
        return [error for error in refused.errors() if error["loc"][0] == key]
    return []
