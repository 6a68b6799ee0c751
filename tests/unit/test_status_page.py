"""The status page says what parts say, as text, and has all that it is made of with it."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from psql_streamer.api import page as status_page
from psql_streamer.interfaces import Status
from psql_streamer.lsn import Lsn

ROOT = Path(__file__).parents[2]


def test_a_row_has_the_part_its_state_its_reason_and_its_counters() -> None:
    counters = {"received_lsn": Lsn(97500059720), "events": 1234567, "skipped": {"public.log": 3000}}
    page = status_page.render_status_page({"source.db1": Status(True, "streaming")}, {"source.db1": counters}, {})
    assert (
        '<tr><th scope="row">source.db1</th><td class="ok">ok</td><td>streaming</td><td><dl>'
        "<dt>received LSN</dt><dd>16/B374D848</dd><dt>events</dt><dd>1,234,567</dd>"
        "<dt>skipped</dt><dd>public.log 3,000</dd></dl></td></tr>\n"
    ) in page


def test_a_part_without_counters_has_an_empty_cell() -> None:
    page = status_page.render_status_page({"sink.k": Status(False, "away")}, {}, {})
    assert '<td class="problem">problem</td><td>away</td><td></td></tr>\n</tbody>' in page
    assert "<title>problem: psql-streamer</title>" in page


def test_what_others_wrote_is_text_and_no_markup() -> None:
    evil = "<script>alert('\"&')</script>"
    part = f"sink.{evil}"
    page = status_page.render_status_page({part: Status(False, evil)}, {part: {evil: evil, "n": {evil: 1}}}, {})
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#39;&#34;&amp;&#39;)&lt;/script&gt;") == 5


def test_the_page_shows_no_password() -> None:
    page = status_page.render_status_page({"source.db1": Status(False, "at postgres://me:hunter2@db/shop")}, {}, {})
    assert "postgres://me:***@db/shop" in page


def test_a_value_that_the_page_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="refresh_seconds"):
        status_page._TEMPLATES.get_template("status_page.html").render()


def test_every_file_of_the_packages_that_is_no_module_is_installed_with_them() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = [
        _in_package(path)
        for top in ("psql_streamer", "sources", "sinks")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert ("psql_streamer.api", "templates/status_page.html") in files
    left_out = [
        f"{package}/{file}"
        for package, file in files
        if not any(fnmatchcase(file, glob) for glob in data.get(package, []))
    ]
    assert left_out == []


def _in_package(path: Path) -> tuple[str, str]:
    """The package that a file is in, and its path there."""
    folder = next(parent for parent in path.parents if (parent / "__init__.py").exists())
    return ".".join(folder.relative_to(ROOT).parts), str(path.relative_to(folder))
