from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.slow

EQUAL = "\nequal: what the rules make of every committed row is in Kafka, once\n"


def test_the_demo_delivers_every_committed_row_and_exits_with_0(kafka: str) -> None:
    done = subprocess.run(
        demo("5"), env=os.environ | {"KAFKA_BROKERS": kafka}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert EQUAL in done.stdout
    assert ": done, 3,200 rows of 4 tables" in done.stdout
    assert "the snapshot gave 3,200 rows that were there; " in done.stdout
    assert re.search(r"^customers    insert .* \d+ left out$", done.stdout, re.MULTILINE)
    assert re.search(r"^baskets      insert .* \d+ more by explode", done.stdout, re.MULTILINE)
    assert re.search(r"^dead letters: [1-9]\d*, ", done.stdout, re.MULTILINE)
    assert re.search(r"^lookup customers: \d+ rows, as its table; all [\d,]+ events ", done.stdout, re.MULTILINE)
    assert done.stderr == ""


@pytest.mark.soak
@pytest.mark.parametrize("source", ["mysql", "kafka", "sql"])
def test_the_demo_of_every_source_delivers_every_committed_row(kafka: str, source: str) -> None:
    done = subprocess.run(
        [*demo("4"), "--source", source],
        env=os.environ | {"KAFKA_BROKERS": kafka},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert EQUAL in done.stdout


@pytest.mark.soak
def test_ctrl_c_ends_the_demo_with_its_summary(kafka: str) -> None:
    with subprocess.Popen(
        demo("600"),
        env=os.environ | {"KAFKA_BROKERS": kafka},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        read_until(running.stdout, "orders      insert")
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=120)
    assert running.returncode == 0, rest + errors
    assert EQUAL in rest
    assert errors == ""


def test_brokers_that_are_not_there_are_named_in_one_line() -> None:
    done = subprocess.run(
        demo("5"), env=os.environ | {"KAFKA_BROKERS": "127.0.0.1:1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "127.0.0.1:1" in done.stderr
    assert "check KAFKA_BROKERS" in done.stderr


def demo(duration: str) -> list[str]:
    return [sys.executable, "-m", "psql_streamer", "demo", "--duration", duration]


def read_until(lines: Iterator[str], beginning: str) -> None:
    assert any(line.startswith(beginning) for line in lines), f"no line begins with {beginning!r}"
