"""Types of a rule's result that no event can hold are refused with the column's name."""

from __future__ import annotations

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.facts import Field
from psql_streamer.spark.unusable_types import refuse_unusable_types


@pytest.mark.parametrize("kind", ["variant", "array<variant>", "struct<a:int,b:variant>", "map<string,variant>"])
def test_a_variant_is_refused(kind: str) -> None:
    with pytest.raises(HandlerRefused, match=r"the column doc is of type .*no VARIANT.*to_json\(doc\)"):
        refuse_unusable_types([Field("id", 0, "int"), Field("doc", None, kind)], "public.t, rule 't'")


@pytest.mark.parametrize("kind", ["struct<variant:int>", "string", "array<struct<variant:string>>"])
def test_a_field_with_such_a_name_is_none(kind: str) -> None:
    refuse_unusable_types([Field("doc", None, kind)], "public.t, rule 't'")
