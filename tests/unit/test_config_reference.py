"""psql-streamer.toml is the reference: every key of it is accepted, and every key that is accepted is in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import tomli
from pydantic import BaseModel, create_model
from pydantic_core import PydanticUndefined

from psql_streamer.config import Config, load
from psql_streamer.config.model import ServiceOptions
from psql_streamer.events.avro.format import DebeziumAvroOptions
from psql_streamer.options import PartOptions
from psql_streamer.plugins import load_handler_class, load_sink_class, load_source_class
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.options import TableRule
from sinks.kafka.options import CreateTopics
from sources.kafka.options import SourceRegistryOptions
from sources.mysql.snapshot.options import SnapshotOptions as MysqlSnapshotOptions
from sources.postgres.snapshot.options import SnapshotOptions
from tests.config_files import written

REFERENCE = Path(__file__).parents[2] / "psql-streamer.toml"
ENVIRON: dict[str, str] = {}

_FILE = re.compile(r"\$\{file:[^}]*\}")
_PARTS = (".snapshot", ".registry", ".formatOptions")
_SETTING = re.compile(r"""(#?)(?:([A-Za-z]\w*|"[^"]+") = .+|\[(.+)\])""")

SECTIONS: dict[str, type[BaseModel]] = {
    "": ServiceOptions,
    "log": type(ServiceOptions.model_fields["log"].default),
    "source.db1": load_source_class("postgres").Options,
    "source.db1.snapshot": SnapshotOptions,
    "source.history": load_source_class("sql").Options,
    "source.shop": load_source_class("mysql").Options,
    "source.shop.snapshot": MysqlSnapshotOptions,
    "source.topics1": load_source_class("kafka").Options,
    "source.topics1.registry": SourceRegistryOptions,
    "sink.kafka1": load_sink_class("kafka").Options,
    "sink.kafka1.createTopics": CreateTopics,
    "sink.avro1.formatOptions": DebeziumAvroOptions,
    "sink.avro1.formatOptions.registry": RegistryOptions,
    "sink.log": load_sink_class("stub_log").Options,
    "sink.nothing": load_sink_class("stub_discard").Options,
    "spark": load_handler_class("spark").Options,
    "spark.tables.*": TableRule,
    "spark.lookups.*": LookupOptions,
}
"""Section of the reference, or a glob of sections -> the options that it must show in full."""


@dataclass(frozen=True)
class Line:
    """A setting or a section header of the reference."""

    number: int
    section: str
    header: bool
    commented: bool
    key: str
    text: str
    example: bool

    def __str__(self) -> str:
        return f"{self.section}:{self.key}" if self.key else f"[{self.section}]"


def lines() -> Iterator[Line]:
    """`Example:` holds for the setting that follows, or for the whole section whose header follows."""
    section, example, example_section = "", False, False
    for number, text in enumerate(REFERENCE.read_text().splitlines()):
        found = _SETTING.fullmatch(text)
        if found is None:
            example = text.endswith("Example:")
            continue
        commented, key, header = bool(found[1]), found[2] or "", found[3]
        if header:
            section, example_section = header, example
        yield Line(number, section, bool(header), commented, key, text.removeprefix("#"), example or example_section)
        example = False


LINES = list(lines())


def whole_sections() -> list[str]:
    return [line.section for line in LINES if line.header and line.commented]


def single_settings() -> list[Line]:
    live = {line.section for line in LINES if line.header and not line.commented} | {""}
    return [line for line in LINES if line.commented and line.key and line.section in live]


def with_lines(folder: Path, chosen: list[Line]) -> Config:
    """The reference, with these lines no longer commented out."""
    text = REFERENCE.read_text().splitlines()
    for line in chosen:
        text[line.number] = _FILE.sub("a-secret-of-many-characters", line.text)
    return load(written(folder, "\n".join(text)), ENVIRON)


def test_the_reference_itself_is_a_configuration() -> None:
    config = load(REFERENCE, ENVIRON)
    assert config.warnings == ()
    assert config.list_handler_names("kafka1") == ("spark",)


@pytest.mark.parametrize("line", single_settings(), ids=str)
def test_a_setting_that_is_commented_out_is_accepted(tmp_path: Path, line: Line) -> None:
    with_lines(tmp_path, [line])


@pytest.mark.parametrize("section", whole_sections())
def test_a_section_that_is_commented_out_is_accepted(tmp_path: Path, section: str) -> None:
    # A part of a section does not stand alone.
    whose = [section]
    while whose[-1].endswith(_PARTS):
        whose.append(whose[-1].rpartition(".")[0])
    below = [part.section for part in LINES if part.header and part.section.startswith(f"{whose[-1]}.formatOptions")]
    with_lines(tmp_path, [line for line in LINES if line.section in [*whose, *below]])


def test_everything_that_is_commented_out_is_accepted_together(tmp_path: Path) -> None:
    config = with_lines(tmp_path, [line for line in LINES if line.commented])
    assert list(config.sinks) == ["kafka1", "avro1", "log", "nothing"]
    assert list(config.sources) == ["db1", "history", "shop", "topics1"]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_reference_shows_every_key(section: str) -> None:
    shown = {line.key for line in LINES if fnmatchcase(line.section, section) and line.key}
    below = f"{section}." if section else ""
    shown |= {line.section.removeprefix(below).split(".")[0] for line in LINES if line.section.startswith(below)}
    accepted = {field.alias or name for name, field in SECTIONS[section].model_fields.items()}
    assert accepted - shown == set()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_setting_that_is_commented_out_shows_its_default(section: str) -> None:
    options = SECTIONS[section]
    shown = [
        line
        for line in LINES
        if fnmatchcase(line.section, section) and line.commented and line.key and not line.example
    ]
    wrong = {}
    for line in shown:
        name, field = next((n, f) for n, f in options.model_fields.items() if (f.alias or n) == line.key)
        default = field.get_default(call_default_factory=True)
        if default is PydanticUndefined:
            continue
        value = validated(options, name, line)
        if value != default:
            wrong[str(line)] = default
    assert wrong == {}


def test_no_key_is_shown_twice() -> None:
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for line in LINES:
        seen[line.section, line.key] += 1
    assert {key: count for key, count in seen.items() if count > 1} == {}


def validated(options: type[BaseModel], name: str, line: Line) -> Any:
    """The value in a line, as this option reads it."""
    field = options.model_fields[name]
    alone = create_model("Alone", __base__=PartOptions, **{name: (field.annotation, field)})
    return getattr(alone.model_validate(tomli.loads(line.text)), name)
