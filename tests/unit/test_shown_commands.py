"""Messages that name a command as the remedy name one that works when it is pasted into a shell."""

from __future__ import annotations

import ast
import re
import shlex
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from psql_streamer.cli import _build_parser
from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.shown_commands import get_file, remember_file, remembering_file, show_command
from sources.mysql.resuming import name_choices
from sources.mysql.server_errors import from_fields
from sources.postgres.reader import Settings, _read_settings
from sources.snapshot.gap_remedies import accept_gap
from sources.sql.source import SqlSource

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"psql-streamer (run|check|validate|position|snapshot|capture|try|demo)\b")

OTHERS = (
    "psql-streamer demo: ",
    "# What `psql-streamer demo` runs.",
    "name a file that psql-streamer capture wrote",
)
"""Beginnings of texts that tell nobody to run something."""

SESSIONS = {"psql-streamer snapshot", "psql-streamer capture "}
"""application_name of sessions."""


def list_files() -> Iterator[tuple[Path, ast.Module]]:
    for package in ("psql_streamer", "sources", "sinks"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield file.relative_to(ROOT), ast.parse(file.read_text())


def list_texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a module, but those that document it."""
    documenting = {
        id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    }
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in documenting:
            yield one.value


def list_shown(tree: ast.AST) -> Iterator[list[str]]:
    """The words of every call of show_command; a name in place of what is known at run time."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "show_command":
            words = [word for word in one.args if not isinstance(word, ast.Starred)]
            yield [str(word.value) if isinstance(word, ast.Constant) else "shop.items" for word in words]


def test_no_message_spells_a_command_by_itself() -> None:
    spelled = [
        (str(file), text)
        for file, tree in list_files()
        for text in list_texts(tree)
        if COMMAND.search(text) and text not in SESSIONS and not text.startswith(OTHERS)
    ]
    assert spelled == []


def test_every_command_that_is_shown_is_one_that_the_command_line_takes() -> None:
    shown = [words for _, tree in list_files() for words in list_shown(tree)]
    assert len(shown) > 15
    with remembering_file(Path("a folder/shop.toml")):
        for words in shown:
            name, *arguments = shlex.split(show_command(*words))
            assert name == "psql-streamer"
            assert _build_parser().parse_args(arguments).config == Path("a folder/shop.toml")


def test_a_command_has_the_file_that_this_one_was_started_with() -> None:
    with remembering_file(Path("it's.toml")):
        assert shlex.split(accept_gap("my shop").partition("(")[2].partition(")")[0]) == [
            *("psql-streamer", "snapshot", "start", "--source", "my shop", "--accept-gap"),
            *("-config", "it's.toml"),
        ]
        assert "(psql-streamer position forget db1 -config " in SqlSource.say_no_snapshots("db1")


def test_without_a_file_the_environment_is_the_configuration_of_both() -> None:
    with remembering_file(None):
        assert show_command("position", "forget", "db1") == "psql-streamer position forget db1"


def test_a_command_within_another_one_has_its_own_file() -> None:
    with remembering_file(Path("one.toml")):
        with remembering_file(Path("other.toml")):
            assert get_file() == Path("other.toml")
        assert get_file() == Path("one.toml")
        remember_file(Path("third.toml"))
    assert get_file() is None


def test_a_log_that_the_server_has_purged_is_answered_with_the_source_that_lacks_it() -> None:
    """With several sources, a command that names none of them would be refused."""
    raised = from_fields(1236, "Could not find first log file name in binary log index file")
    assert isinstance(raised, PositionRefused)
    with remembering_file(Path("shop.toml")):
        named = name_choices(raised, "db1")
    assert named.what == raised.what
    assert "psql-streamer snapshot start --source db1 --accept-gap -config shop.toml" in named.remedy
    other = SourceUnavailable("the server is away")
    assert name_choices(other, "db1") is other


def test_the_process_that_reads_wal_is_told_of_the_file() -> None:
    made = Settings("dsn", "s", ["p"], ("1", 1, "d"), 0, 0, 1.0, 1.0, 1, 1.0, 1, "a", "db1", "a folder/shop.toml")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(made.encode_line())
        assert _read_settings(theirs) == replace(made, identity=["1", 1, "d"])  # type: ignore[arg-type]  # from JSON
