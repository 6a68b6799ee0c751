"""What the log looks like, and what never gets into it."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from psql_streamer import logs
from psql_streamer.config import LogFormat, LogLevel, LogOptions
from psql_streamer.errors import SinkUnavailable

DB1 = logging.getLogger("psql_streamer.source.db1")
KAFKA1 = logging.getLogger("psql_streamer.sink.kafka1")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    logs.configure(LogOptions())
    root.handlers[:], root.level = before


def configured(verbosity: int = 0, debug: tuple[str, ...] = (), **options: object) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(LogOptions.model_validate(options), verbosity, debug, stream)
    return stream


def test_a_line_of_text_has_time_level_and_part() -> None:
    out = configured()
    DB1.info("connected to %s", "db")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    source\.db1: connected to db\n", out.getvalue()
    )


def test_no_message_makes_a_line_that_looks_like_one_of_the_log_or_steers_the_terminal() -> None:
    out = configured()
    DB1.info("public.%s is read", "a\n2026-01-31T12:00:00.123Z ERROR   sink.k: \x1b[2Jforged \u202eb")
    first, second = out.getvalue().splitlines()
    assert first.endswith("source.db1: public.a")
    assert second == "    2026-01-31T12:00:00.123Z ERROR   sink.k: \\x1b[2Jforged \\u202eb is read"


def test_json_is_one_object_a_line_whatever_the_message() -> None:
    out = configured(format=LogFormat.JSON)
    DB1.warning('a "quoted"\nmessage, é')
    [line] = out.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {"level": "warning", "part": "source.db1", "message": 'a "quoted"\nmessage, é'}


@pytest.mark.parametrize(
    ("level", "verbosity", "shown"),
    [
        (LogLevel.INFO, 0, ["error", "warning", "info"]),
        (LogLevel.INFO, 1, ["error", "warning", "info", "debug"]),
        (LogLevel.INFO, 5, ["error", "warning", "info", "debug"]),
        (LogLevel.INFO, -1, ["error", "warning"]),
        (LogLevel.INFO, -9, ["error"]),
        (LogLevel.ERROR, 0, ["error"]),
        (LogLevel.ERROR, 1, ["error", "warning"]),
    ],
)
def test_the_level_is_moved_by_v_and_q(level: LogLevel, verbosity: int, shown: list[str]) -> None:
    out = configured(verbosity, level=level)
    for name in ("error", "warning", "info", "debug"):
        getattr(DB1, name)(name)
    assert [line.rpartition(": ")[2] for line in out.getvalue().splitlines()] == shown


def test_debug_of_one_part_leaves_the_others_alone() -> None:
    out = configured(debug=("source.db1",))
    DB1.debug("mine")
    KAFKA1.debug("not mine")
    assert out.getvalue().endswith("source.db1: mine\n")


def test_debug_is_switched_on_and_off_while_running() -> None:
    out = configured(debug=("source.db1",), level=LogLevel.WARNING)
    logs.set_debug(on=True)
    KAFKA1.debug("first")
    logs.set_debug(on=False)
    KAFKA1.debug("second")
    DB1.debug("third")
    KAFKA1.info("fourth")
    logs.set_part_debug("sink.kafka1", on=True)
    KAFKA1.debug("fifth")
    logs.set_part_debug("sink.kafka1", on=False)
    KAFKA1.debug("sixth")
    assert [line.rpartition(": ")[2] for line in out.getvalue().splitlines()] == ["first", "fifth"]


def test_other_libraries_speak_from_warning_on() -> None:
    out = configured(2)
    logging.getLogger("py4j.clientserver").info("chatter")
    logging.getLogger("uvicorn.error").warning("port in use")
    assert out.getvalue().endswith("WARNING uvicorn.error: port in use\n")


def failed(error: Exception) -> None:
    try:
        raise error
    except Exception:
        KAFKA1.exception("write failed")


@pytest.mark.parametrize("form", LogFormat)
def test_an_error_of_ours_is_told_without_a_traceback(form: LogFormat) -> None:
    out = configured(format=form)
    failed(SinkUnavailable("brokers away", "start them"))
    assert "write failed: brokers away: start them" in out.getvalue()
    assert "Traceback" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1


@pytest.mark.parametrize("form", LogFormat)
def test_with_debug_it_has_one(form: LogFormat) -> None:
    out = configured(1, format=form)
    failed(SinkUnavailable("brokers away"))
    assert "Traceback" in out.getvalue()


def test_an_unexpected_exception_always_has_one() -> None:
    out = configured()
    failed(ValueError("a bug"))
    assert "Traceback" in out.getvalue()
    assert "ValueError: a bug" in out.getvalue()


@pytest.mark.parametrize("form", LogFormat)
def test_passwords_never_get_out(form: LogFormat) -> None:
    out = configured(1, format=form)
    DB1.info("connecting to %s", "postgres://me:hunter2@db/shop")
    DB1.info("connecting with host=db password='hunter2 \\' x' user=me")
    failed(SinkUnavailable("cannot connect with sasl.password=hunter2"))
    failed(ValueError("postgres://me:hunter2@db/shop"))
    assert "hunter2" not in out.getvalue()
    assert "postgres://me:***@db/shop" in out.getvalue()
