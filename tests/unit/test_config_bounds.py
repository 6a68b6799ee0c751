"""What a number may be ends where the libraries that count with it end: a file that `validate` accepts starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

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
