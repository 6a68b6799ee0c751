"""`psql-streamer snapshot reconcile`: the keys that it posts, from where on, and what it says of what is wrong."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.cli import main
from psql_streamer.commands import key_file, key_posting
from psql_streamer.commands.key_file import KeyFile
from psql_streamer.commands.key_posting import KeyPoster
from psql_streamer.commands.service_client import RequestRefused
from psql_streamer.errors import StreamerError
from psql_streamer.snapshots import KeysProgress, SnapshotState
from tests.unit.test_snapshot_command import RUNNING, shown

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def filled(*documents: bytes) -> KeyFile:
    keys = KeyFile()
    try:
        keys.add(documents, "here")
    except StreamerError:
        keys.__exit__()
        raise
    return keys


def test_keys_are_read_from_any_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "_KEYS_A_MARK", 3)
    documents = [b'{"id":%d}' % number for number in range(10)]
    with filled(b" \n", documents[0] + b" \r\n", *documents[1:]) as keys:
        assert len(keys) == 10
        for first in range(11):
            assert keys.read_block(first, 4, 1000) == documents[first : first + 4]
        assert keys.read_block(2, 10, 20) == documents[2:4]
        assert keys.read_block(2, 10, 1) == documents[2:3]


@pytest.mark.parametrize("document", [b"secret", b'{"id":secret}', b'["secret"]', b"{}", b'{"id":1}\n{"id":2}'])
def test_what_is_no_key_is_refused_by_its_line(document: bytes) -> None:
    with pytest.raises(StreamerError, match="here: key 2 is no JSON object") as caught:
        filled(b'{"id":1}', document)
    assert "secret" not in str(caught.value)


class Service:
    """Takes two keys at a time, and forgets those that are not settled when it is told to. Every key is settled with
    the next request.
    """

    def __init__(self, room: int = 2) -> None:
        self.keys: dict[int, Any] = {}
        self.next = 0
        self.settled = 0
        self.complete = False
        self.refusing = False
        self._room = room

    def restart(self) -> None:
        self.next, self.complete = self.settled, False

    def get(self, _: str) -> Any:
        self.settled = self.next
        done = self.complete
        progress = KeysProgress(self.settled, 0, 0, self.next, self.complete)
        state = SnapshotState.FAILED if self.refusing else SnapshotState.DONE if done else SnapshotState.RUNNING
        return shown(RUNNING) | {"state": state.value, "keys": asdict(progress)}

    def post_json(self, path: str, body: bytes) -> Any:
        if self.refusing:
            raise RequestRefused(409, "it has ended")
        posted = json.loads(body)
        skip = self.next - posted["from"]
        if skip >= 0:
            for document in posted["keys"][skip : skip + self._room]:
                self.keys[self.next] = document
                self.next += 1
            self.complete = posted["complete"] and self.next == posted["from"] + len(posted["keys"])
        answer = self.get(path)
        return answer | {"state": "running"}


def post_all(service: Service, keys: KeyFile, restart_at: int = -1) -> int:
    """How often it took."""
    poster = KeyPoster(service, "/snapshots/x", "/snapshots/x/keys", keys)  # type: ignore[arg-type]
    for number in range(100):
        if number == restart_at:
            service.restart()
        if poster.post().progress.state.ended:
            return number
    raise AssertionError("it has no end")


def test_all_keys_are_posted_from_where_the_service_says_on() -> None:
    with filled(*[b'{"id":%d}' % number for number in range(7)]) as keys:
        service = Service()
        post_all(service, keys)
        assert list(service.keys.values()) == [{"id": number} for number in range(7)]


def test_a_service_that_was_started_again_gets_what_it_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_posting, "_SHOW_SECONDS", -1.0)
    monkeypatch.setattr(Service, "get", _unsettled(Service.get))
    with filled(*[b'{"id":%d}' % number for number in range(7)]) as keys:
        poster = KeyPoster(service := Service(), "p", "k", keys)  # type: ignore[arg-type]
        poster._post_block(0)
        service.settled = 1
        service.restart()
        poster._post_block(1)
        assert list(service.keys.values()) == [{"id": number} for number in range(3)]


def _unsettled(get: Any) -> Any:
    def without(service: Service, path: str) -> Any:
        settled = service.settled
        answer = get(service, path)
        service.settled = settled
        return answer

    return without


def test_no_keys_at_all_are_said_to_be_complete() -> None:
    with filled() as keys:
        service = Service()
        post_all(service, keys)
        assert service.complete


def test_what_ends_meanwhile_ends_the_posting() -> None:
    with filled(b'{"id":1}') as keys:
        service = Service()
        service.refusing = True
        poster = KeyPoster(service, "p", "k", keys)  # type: ignore[arg-type]
        assert poster.post().progress.state is SnapshotState.FAILED
        assert not poster._post_block(0)


_CONFIG = """
http = "127.0.0.1:1"
lmdb = "{folder}/positions"
[source.db1]
type = "tests.snapshot_source:MadeUpSource"
[sink.nothing]
type = "stub_discard"
sources = ["db1"]
{more}
"""


def run(folder: Path, *arguments: str, more: str = "") -> int:
    path = folder / "psql-streamer.toml"
    path.write_text(_CONFIG.format(folder=folder, more=more))
    return main(["snapshot", "reconcile", "--table", "public.a", *arguments, "-config", str(path)])


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ([], 1, "sink nothing: events of a sink of this type are not read: give the keys as a file"),
        (["--sink", "kafka"], 2, 'source db1 has no sink "kafka"'),
        (["--source", "db2"], 2, 'there is no source "db2"'),
        (["--form", "json"], 2, "--form is of keys in a file"),
        (["--keys", "none.jsonl"], 1, "none.jsonl: No such file or directory"),
        (["--keys", "none.jsonl", "--topic", "t"], 2, "--keys has them from a file"),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, reason: str
) -> None:
    assert run(tmp_path, *arguments) == code
    assert reason in capsys.readouterr().err


def test_keys_from_stdin_are_for_a_service_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"id":1}\n')

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert run(tmp_path, "--keys", "-") == 1
    assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().err
