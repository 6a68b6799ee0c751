"""Parts of packages that are not in order: what somebody is told who names them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from psql_streamer import entry_points, plugins
from psql_streamer.errors import ConfigError

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with one sink on the path: the line of its entry point, and what its module `own_parts` holds."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(line: str, module: str) -> None:
        metadata = tmp_path / "own-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[psql_streamer.sinks]\n{line}\n")
        (tmp_path / "own_parts.py").write_text(module)

    entry_points._read_entry_points.cache_clear()
    yield put
    entry_points._read_entry_points.cache_clear()
    sys.modules.pop("own_parts", None)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence: correct own_parts"),
        ("def own(:", "SyntaxError: "),
        ("raise SystemExit(7)", "SystemExit: 7: correct own_parts"),
        ("import at_no_place", "No module named 'at_no_place': install the package"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_problem_of_the_configuration(
    install: Install, module: str, told: str
) -> None:
    install("own = own_parts:Own", module)
    with pytest.raises(ConfigError) as refused:
        plugins.load_sink_class("own")
    assert str(refused.value).startswith(f'"own" cannot be imported: {told}')


def test_an_entry_point_without_a_class_is_a_problem_of_the_configuration(install: Install) -> None:
    install("own = own_parts", "")
    with pytest.raises(
        ConfigError, match=r'"own" is not a sink: it must be a subclass of psql_streamer.interfaces.Sink'
    ):
        plugins.load_sink_class("own")


def test_a_name_that_two_packages_give_to_classes_stands_for_neither(install: Install) -> None:
    install("stub_discard = own_parts:Own", "from sinks.stub import StubDiscardSink as Own")
    with pytest.raises(ConfigError) as refused:
        plugins.load_sink_class("stub_discard")
    classes = "own_parts:Own or sinks.stub:StubDiscardSink"
    assert str(refused.value) == f'"stub_discard" is a sink of several packages: write {classes} in its place'
    assert plugins.load_sink_class("own_parts:Own") is plugins.load_sink_class("sinks.stub:StubDiscardSink")
