"""docs/types.md out of the table of types: `python -m tests.types_page` writes it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from psql_streamer.pgtype import JsonForm
from psql_streamer.pgtypes.builtin import BUILT_IN

PAGE = Path(__file__).parents[1] / "docs" / "types.md"

_HEAD = """\
# Types

What a value becomes in the JSON of an event. The first table is made of `psql_streamer/pgtypes/builtin.py` by
`python -m tests.types_page`; a test holds the two equal.

Values are taken in PostgreSQL's text form. DateStyle (ISO), IntervalStyle (iso_8601), TimeZone (UTC),
extra_float_digits (1) and bytea_output (hex) are pinned on the connection, so that the settings of server, role and
machine change nothing.

| PostgreSQL | JSON |
|---|---|
"""
_TAIL = f"""
| what is made in a database, or of other types | JSON |
|---|---|
| arrays of anything | {JsonForm.ARRAY.value} |
| composite types | {JsonForm.OBJECT.value} |
| domains | as the type that they are over |
| enums, ranges of one's own, types of extensions, types that are dropped by now | a string, PostgreSQL's text form |

Nothing is dropped because its type is unknown.

## Details
- SQL NULL is `null`. A JSON `null` inside a json or jsonb column is `null` as well.
- `numeric` keeps its digits: `12.50` stays `12.50`, and never passes through a float. Read it with a parser that keeps
  decimals (Python: `json.loads(text, parse_float=Decimal)`); so, too, integers above 2^53.
- `timestamp` is `2026-01-31T12:00:00.123456`, `timestamptz` the same with `Z`, `date` is `2026-01-31`, `time` is
  `12:00:00`. `infinity`, `-infinity`, `0044-03-15T00:00:00 BC` and years past 9999 come as PostgreSQL writes them.
- `interval` is ISO 8601: `P1DT2H`.
- A type is looked up once while the service runs. A composite value with more or fewer attributes than its type had
  then (ALTER TYPE ... ADD ATTRIBUTE) is a string, its text form, until the service is restarted.
  So with the labels of an enum, which `debezium` names in its schemas.
- What Spark computes is of the PostgreSQL type that its type corresponds to. Structs become objects, arrays become
  arrays, and maps objects if their keys are strings, else arrays of pairs `[key, value]`; what is inside of them is
  what a column of its type is. In `debezium` with schemas they have Connect's schemas of structs, arrays and maps.
  [spark.md](spark.md) has the types that a rule sees.
"""


def page() -> str:
    """The whole page."""
    by_form: dict[JsonForm, list[str]] = defaultdict(list)
    for kind in BUILT_IN:
        by_form[kind.form].append(f"`{kind.name}`")
    rows = [f"| {', '.join(by_form[form])} | {form.value} |\n" for form in JsonForm if form in by_form]
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
