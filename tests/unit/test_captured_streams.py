"""What real PostgreSQL servers sent (captured by tests/capture_streams.py), however its bytes come in."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.model import Marker, RowOp
from psql_streamer.pgoutput.frames import FrameBuffer
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.capture_scenarios import SCENARIOS
from tests.capture_streams import CAPTURED
from tests.decoding import BEGINNING, decode, decoder
from tests.flatten import flatten, flatten_all
from tests.naive_pgoutput import ABSENT, NaiveChange, naive_changes, without_places
from tests.pgoutput_wire import split_frames

STREAMS = sorted(CAPTURED.glob("*.bin"))
SMALL = 6_000

every_stream = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS)


def test_every_scenario_was_captured_from_several_servers() -> None:
    for scenario in SCENARIOS:
        assert len(list(CAPTURED.glob(f"pg*_{scenario}.bin"))) >= 3


@every_stream
def test_a_captured_stream_in_blocks_of_any_size(path: Path) -> None:
    stream = path.read_bytes()
    frames = split_frames(stream)
    expected = naive_changes(stream)
    assert expected
    for size in (len(frames), 1, 2, 3, 7, 20):
        assert flatten_all(decode(frames, size)) == expected, f"in blocks of {size}"


@every_stream
def test_a_captured_stream_split_at_every_byte(path: Path) -> None:
    stream = path.read_bytes()
    for cut in range(len(stream)):
        buffer = FrameBuffer()
        taken = b""
        for piece in (stream[:cut], stream[cut:]):
            buffer.feed(piece)
            block = buffer.take(max_bytes=1 << 20, max_frames=1 << 20)
            taken += block.data if block else b""
        assert taken == stream, f"cut after {cut} bytes"


@pytest.mark.parametrize("path", [path for path in STREAMS if path.stat().st_size < SMALL], ids=lambda path: path.stem)
def test_a_captured_stream_fed_in_small_pieces(path: Path) -> None:
    stream = path.read_bytes()
    expected = naive_changes(stream)
    for length in (1, 2, 5, 31, 1000):
        buffer, machine = FrameBuffer(), decoder()
        changes: list[NaiveChange] = []
        for start in range(0, len(stream), length):
            buffer.feed(memoryview(stream)[start : start + length])
            while (block := buffer.take(max_bytes=200, max_frames=3)) is not None:
                changes += flatten(machine.decode(block.data, block.offsets))
        assert changes == expected, f"in pieces of {length} bytes"


@every_stream
def test_a_captured_stream_leaves_no_transaction_open(path: Path) -> None:
    batches = decode(split_frames(path.read_bytes()), 1)
    assert WalPosition.from_position(batches[-1].position).changes == 0
    assert WalPosition.from_position(batches[-1].position).lsn > BEGINNING.lsn


@every_scenario
def test_every_server_version_tells_the_same(scenario: str) -> None:
    told = [without_places(naive_changes(path.read_bytes())) for path in sorted(CAPTURED.glob(f"pg*_{scenario}.bin"))]
    assert all(changes == told[0] for changes in told)


@pytest.mark.behaviour("D3")
@pytest.mark.parametrize("path", sorted(CAPTURED.glob("*_identities.bin")), ids=lambda path: path.stem)
def test_the_rows_of_every_replica_identity_are_those_that_were_written(path: Path) -> None:
    frames = split_frames(path.read_bytes())
    lack = ABSENT
    assert [
        (change.relation.table, change.op, change.before, change.after)
        for change in flatten_all(decode(frames, len(frames)))
        if change.relation
    ] == [
        ("by_key", "I", None, (b"1", b"one", None)),
        ("by_key", "I", None, (b"2", b"", "🐘".encode())),
        ("by_key", "I", None, (b"3", None, b"")),
        ("by_key", "U", None, (b"1", b"uno", None)),
        ("by_key", "U", (b"1", lack, lack), (b"10", None, None)),
        ("by_key", "D", (b"2", lack, lack), None),
        ("whole", "I", None, (b"1", b"old")),
        ("whole", "I", None, (b"2", None)),
        ("whole", "U", (b"1", b"old"), (b"1", b"new")),
        ("whole", "D", (b"2", None), None),
        ("by_index", "I", None, (b"1", b"x", b"49", b"first")),
        ("by_index", "U", None, (b"1", b"x", b"49", b"second")),
        ("by_index", "U", (lack, b"x", b"49", lack), (b"1", b"y", b"49", b"second")),
        ("by_index", "D", (lack, b"y", b"49", lack), None),
        ("anonymous", "I", None, (b"nobody",)),
        ("dots.and spaces", "I", None, (b"7",)),
    ]


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("path", sorted(CAPTURED.glob("*_toast.bin")), ids=lambda path: path.stem)
def test_unchanged_toast_is_absent_and_null_is_null(path: Path) -> None:
    frames = split_frames(path.read_bytes())
    updates = [change for change in flatten_all(decode(frames, len(frames))) if change.op == "U"]
    assert [change.after and change.after[2] for change in updates] == [ABSENT, b"small", None, ABSENT]
    full = updates[-1]
    assert full.before is not None
    assert isinstance(full.before[2], bytes)
    assert len(full.before[2]) == 3200, "identity FULL has the old value, which is also the new one"


@pytest.mark.behaviour("D10", "D11")
@pytest.mark.parametrize("path", sorted(CAPTURED.glob("*_truncates_and_messages.bin")), ids=lambda path: path.stem)
def test_a_truncate_of_several_tables_is_a_change_for_each(path: Path) -> None:
    frames = split_frames(path.read_bytes())
    (batch,) = decode(frames, len(frames))
    told = [
        (truncate.relation.table, truncate.seq, truncate.cascade, truncate.restart_identity)
        for truncate in batch.truncates
    ]
    assert told == [
        ("other", 0, False, False),
        ("parent", 0, False, True),
        ("child", 1, False, True),
        ("parent", 0, True, False),
        ("child", 1, True, False),
        ("other", 1, True, False),
        ("parent", 2, True, False),
        ("child", 3, True, False),
    ]
    assert [(message.prefix, message.content, message.tx < 0) for message in batch.messages] == [
        ("outside", b"before all", True),
        ("outside", b"\x00\xffd\x00", True),
        ("inside", b"text", False),
        ("", b"", False),
    ]


@every_stream
def test_a_batch_counts_what_it_holds(path: Path) -> None:
    stream = path.read_bytes()
    frames = split_frames(stream)
    (batch,) = decode(frames, len(frames))
    expected = naive_changes(stream)
    counted = {op: sum(rows for *_, of, rows in batch.count_changes() if of is op) for op in (*RowOp, *Marker)}
    assert counted == {op: sum(change.op == chr(op) for change in expected) for op in (*RowOp, *Marker)}
