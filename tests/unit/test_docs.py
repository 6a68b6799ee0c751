"""What the documents say is so: TOML loads, commands and files exist, the type table is the code's."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from pathlib import Path

import pytest
import tomli

from psql_streamer import cli
from psql_streamer.config import load
from tests import types_page

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
WHOLE_PAGES = [DOCS / "two-machines.md", *sorted((DOCS / "migrating").glob("*.md"))]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _commands() -> list[list[str]]:
    lines = "".join(_blocks(README, "sh")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_the_readmes_configuration_loads_alone_and_with_its_rule(tmp_path: Path) -> None:
    rule, whole = _blocks(README, "toml")
    for number, text in enumerate((whole, f"{whole}\n{rule}")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        config = load(file, {"PG_PASSWORD": "choose-one"})
        assert config.warnings == ()
        assert config.list_handler_names("kafka") == ("spark",)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_toml_block_is_toml(page: Path) -> None:
    for block in _blocks(page.read_text(), "toml"):
        tomli.loads(block)


@pytest.mark.parametrize("page", WHOLE_PAGES, ids=lambda page: page.name)
def test_every_toml_block_of_these_pages_is_a_configuration_that_loads(page: Path, tmp_path: Path) -> None:
    blocks = _blocks(page.read_text(), "toml")
    assert blocks
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(_completed(block))
        config = load(file, dict.fromkeys(re.findall(r"\$\{(\w+)\}", block), "choose-one"))
        assert config.warnings == ()


def _completed(block: str) -> str:
    """A fragment with what every file has: an address, positions, and a sink for its sources."""
    given = tomli.loads(block)
    general = {"http": ":0"} | ({} if given.keys() & {"lmdb", "boltdb"} else {"lmdb": "positions"})
    head = "".join(f'{key} = "{value}"\n' for key, value in general.items() if key not in given)
    rest = "" if "sink" in given else f'[sink.rest]\ntype = "stub_log"\nsources = {json.dumps(list(given["source"]))}\n'
    return f"{head}{block}\n{rest}"


def test_the_readmes_psql_streamer_commands_are_understood() -> None:
    ours = [words[1:] for words in _commands() if words[0] == "psql-streamer"]
    config = ["-config", "shop.toml"]
    table = ["--table", "public.orders"]
    trying = [["capture", *config, *table, "-n", "100", ">", "events.jsonl"]]
    trying += [["try", *config, *table, "--events", "events.jsonl"]]
    assert ours == [*trying, ["check", *config], config, ["snapshot", "list", *config]]
    inline = re.findall(r"`psql-streamer ([a-z][^`]*)`", README)
    for arguments in [*ours, *(shlex.split(text) for text in inline)]:
        cli._build_parser().parse_args(arguments[: arguments.index(">")] if ">" in arguments else arguments)


def test_the_readmes_make_targets_exist() -> None:
    targets = {words[1] for words in _commands() if words[0] == "make"} | set(re.findall(r"`make (\w+)`", README))
    assert targets >= {"demo", "check", "test", "bench"}
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_sections_lead_to_one(page: Path) -> None:
    links = re.findall(r"\]\(((?:[^)#\s]+\.md)?)#([^)]+)\)", page.read_text())
    local = [(page.parent / target if target else page, name) for target, name in links if "://" not in target]
    assert [(target.name, name) for target, name in local if name not in _list_sections(target)] == []


def _list_sections(page: Path) -> set[str]:
    """What links call the sections of a page: those of one name have numbers from the second on."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return {f"{name}-{count}" if count else name for name, count in zip(names, before, strict=True)}


def test_the_tests_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:unit|integration|system)/test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 10
    for file, test in named:
        path = ROOT / "tests" / file
        assert path.exists(), file
        assert f"def {test}(" in path.read_text() or not test, f"{file}::{test}"


def test_the_type_table_is_the_codes() -> None:
    text = types_page.PAGE.read_text()
    assert types_page.HEAD in text
    assert types_page.page(text) == text, "write it anew: python -m tests.types_page"


def test_the_examples_carry_the_checksum_that_the_documents_describe() -> None:
    pages = [README, (ROOT / "docs" / "events.md").read_text(), *(page.read_text() for page in WHOLE_PAGES)]
    blocks = [block for page in pages for block in _blocks(page, "json")]
    events = [block for block in blocks if "checksum" in block.lower()]
    assert len(events) == 11
    for text in events:
        event = json.loads(text)
        given = event.get("Checksum") or event["checksum"]
        row = re.search(r'"(?:Columns|after)":(\{.*?\})', text)
        assert row
        assert f"{zlib.crc32(row[1].encode()):08x}" == given
