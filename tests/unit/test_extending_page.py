"""The sink and the format of docs/extending.md keep what the plug-in contract promises."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from psql_streamer.errors import SinkUnavailable
from psql_streamer.events.format import Format
from psql_streamer.interfaces import Sink
from psql_streamer.testing import FormatContract, SinkContract, WrittenEvent, make_batch
from psql_streamer.testing.samples import ROWS
from tests.extending_page import files


def module(path: str) -> ModuleType:
    """A module of the page's package."""
    made = ModuleType(path.removesuffix(".py").replace("/", "."))
    exec(compile(files()[path], path, "exec", dont_inherit=True), made.__dict__)
    return made


def lines_sink(file: Path) -> Sink:
    kind = module("shop_events/sinks.py").LinesSink
    section = {"type": "lines", "sources": ["db1"], "file": str(file), "topicFallback": "events"}
    sink: Sink = kind("lines", kind.Options.model_validate(section))
    return sink


@contextmanager
def full_behind(size: int) -> Iterator[None]:
    """A time in which files of this process grow to this size at most: what is written beyond it is cut off."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestLinesSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._file = tmp_path / "events.txt"

    def make_sink(self) -> Sink:
        return lines_sink(self._file)

    def make_unreachable_sink(self) -> Sink:
        return lines_sink(self._file.parent / "away" / "events.txt")

    def list_written(self) -> Sequence[WrittenEvent]:
        lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        pairs = [line.split(b"\t", 1) for line in lines]
        return [WrittenEvent(None if key == b"null" else key, value) for key, value in pairs]

    @contextmanager
    def cause_outage(self) -> Iterator[None]:
        size = self._file.stat().st_size if self._file.exists() else 0
        with full_behind(size + 10):
            yield


class TestBrief(FormatContract):
    def make_format(self) -> Format:
        kind = module("shop_events/formats.py").Brief
        made: Format = kind(kind.Options(region="eu"))
        return made


@pytest.mark.parametrize("room", [0, 1, 40, 200])
def test_what_a_full_disk_has_cut_off_is_written_whole_when_there_is_room(tmp_path: Path, room: int) -> None:
    batch, expected = make_batch(ROWS, "id"), tmp_path / "expected.txt"
    for file in (expected, tmp_path / "events.txt"):
        sink = lines_sink(file)
        sink.start()
        sink.write(make_batch(ROWS[:2], "id"))
        if file is not expected:
            with full_behind(file.stat().st_size + room), pytest.raises(SinkUnavailable, match="cannot be written: "):
                sink.write(batch)
            assert file.read_bytes().count(b"\n") == 2, "a batch that was cut off is taken back"
            assert not sink.status().ok
        sink.write(batch)
        sink.stop()
    assert (tmp_path / "events.txt").read_bytes() == expected.read_bytes()


def test_a_full_disk_from_the_beginning_is_told_in_words() -> None:
    sink = lines_sink(Path("/dev/full"))
    sink.start()
    with pytest.raises(SinkUnavailable, match="/dev/full cannot be written: No space left on device"):
        sink.write(make_batch(ROWS, "id"))
    sink.stop()
