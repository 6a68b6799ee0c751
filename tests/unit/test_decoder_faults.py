"""Damaged frames end in a ProtocolError or in what a plain decoder reads too: no hang, no other exception, and never
a byte of a neighbour. Every frame of the streams here has bytes of its own, so that a stray byte shows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import pytest

from psql_streamer.errors import ProtocolError
from psql_streamer.pgoutput.decoder import Decoder
from tests import pgoutput_wire as wire
from tests.decoding import block, decode, decoder
from tests.few import each_way  # noqa: F401 - a fixture
from tests.flatten import flatten_all
from tests.mutations import mutated
from tests.naive_pgoutput import NaiveChange, NaiveDecoder, NaiveError, naive_changes
from tests.pgoutput_wire import UNCHANGED, WireColumn, WireRelation

QUICK_CASES = 3_000
SLOW_CASES = 6_000
SOAK_CASES = 1_000_000
BATCH = 500
WHOLE_STREAM_SHARE = 50
SHARES = 2

KEYED = WireRelation(16400, "public", "keyed", (WireColumn("id", 20, key=True), WireColumn("a"), WireColumn("b")))
FULL = WireRelation(16401, "public", "full", (WireColumn("x", key=True), WireColumn("y", key=True)), "f")
EMPTY = WireRelation(16402, "public", "empty", ())
WIDE = WireRelation(16403, "public", "wide", tuple(WireColumn(f"c{n}", key=n == 0) for n in range(8)), "i")


def framed(message: bytes, lsn: int = 900) -> bytes:
    return wire.copy_data(wire.xlog_data(message, lsn, lsn + 7))


BEFORE = [
    framed(wire.begin(1000, 77, 7)),
    framed(wire.origin(1, "o")),
    *(framed(wire.relation(shape)) for shape in (KEYED, FULL, EMPTY, WIDE)),
]
AFTER = [framed(wire.commit(1000, 1050, 77))]
CHANGES = [
    framed(wire.insert(16400, [b"1", b"one", b"eins"]), 901),
    framed(wire.insert(16400, [b"2", None, b""]), 902),
    framed(wire.update(16400, [b"3", b"three", UNCHANGED]), 903),
    framed(wire.update(16400, [b"44", None, b"vier"], [b"4", None, None]), 904),
    framed(wire.delete(16400, [b"5", None, None]), 905),
    framed(wire.insert(16401, [b"left", b"right"]), 906),
    framed(wire.update(16401, [b"up", UNCHANGED], [b"down", b"under"], "O"), 907),
    framed(wire.delete(16401, [b"gone", None], "O"), 908),
    framed(wire.insert(16402, []), 909),
    framed(wire.insert(16403, [b"w%d" % n for n in range(8)]), 910),
    framed(wire.update(16403, [b"z", *[None, UNCHANGED, b"q"] * 2, b"end"]), 911),
    framed(wire.truncate([16400, 16401], cascade=True), 912),
    framed(wire.message(913, "prefix", b"content")),
    framed(wire.message(914, "loose", b"", transactional=False)),
]
ALIVE = wire.copy_data(wire.keepalive(800, 5, reply_requested=True))
STREAM = [
    ALIVE,
    *BEFORE,
    *CHANGES,
    ALIVE,
    framed(wire.type_(9, "s", "t")),
    *AFTER,
    framed(wire.stream_abort(7, 8)),
    ALIVE,
]


def test_the_streams_are_sound_before_they_are_damaged() -> None:
    assert agree(STREAM)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("index", range(len(STREAM)), ids=lambda index: f"frame{index}")
def test_a_frame_cut_at_every_byte(index: int) -> None:
    for length in range(5, len(STREAM[index])):
        agree([*STREAM[:index], wire.copy_data(STREAM[index][5:length]), *STREAM[index + 1 :]])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("index", range(len(CHANGES)), ids=lambda index: f"frame{index}")
def test_a_last_frame_cut_at_every_byte(index: int) -> None:
    """Nothing lies behind it that could be read by mistake."""
    for length in range(5, len(CHANGES[index])):
        agree([*BEFORE, wire.copy_data(CHANGES[index][5:length])])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("index", range(len(CHANGES)), ids=lambda index: f"frame{index}")
def test_a_row_followed_by_a_byte_too_many_is_refused(index: int) -> None:
    longer = wire.copy_data(CHANGES[index][5:] + b"n")
    with pytest.raises(ProtocolError):
        decode([*BEFORE, *CHANGES[:index], longer, *CHANGES[index + 1 :]], 100)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("index", range(len(CHANGES)), ids=lambda index: f"frame{index}")
def test_a_change_cut_short_is_refused_and_does_not_read_on_in_the_next(index: int) -> None:
    for length in range(5, len(CHANGES[index])):
        shorter = wire.copy_data(CHANGES[index][5:length])
        with pytest.raises(ProtocolError):
            decode([*BEFORE, shorter, *CHANGES], 100)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("rows", [CHANGES[:0], CHANGES[:1]], ids=["alone", "behind another table's"])
def test_a_key_of_a_table_without_columns_is_read(rows: list[bytes]) -> None:
    deleted, updated = framed(wire.delete(16402, []), 915), framed(wire.update(16402, [], []), 916)
    for change in (deleted, updated):
        assert agree([*BEFORE, *rows, change, *AFTER])


@pytest.mark.behaviour("D12")
def test_an_unknown_message_byte_is_named() -> None:
    for kind in set(range(256)) - set(b"ABCORYIUDTM"):
        with pytest.raises(ProtocolError) as refused:
            decode([*BEFORE, framed(bytes([kind]) + bytes(20))], 100)
        assert repr(chr(kind)) in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "frames"),
    [
        ("a change before its Relation message", [BEFORE[0], CHANGES[0]]),
        ("a change outside a transaction", [*BEFORE[1:], CHANGES[0]]),
        ("a truncate outside a transaction", [*BEFORE[1:], CHANGES[11]]),
        ("a truncate of an unknown relation", [BEFORE[0], CHANGES[11]]),
        ("a transactional message outside a transaction", [CHANGES[12]]),
        ("a Begin inside a transaction", [BEFORE[0], BEFORE[0]]),
        ("a Commit without a Begin", AFTER),
        ("a Commit of another transaction", [BEFORE[0], framed(wire.commit(1001, 1050, 77))]),
        ("a column more than the relation has", [*BEFORE, framed(wire.insert(16401, [b"a", b"b", b"c"]))]),
        ("a column less than the relation has", [*BEFORE, framed(wire.insert(16401, [b"a"]))]),
        ("an insert with an old row", [*BEFORE, framed(b"I" + wire.delete(16401, [b"a", b"b"], "O")[1:])]),
        ("a delete with a new row", [*BEFORE, framed(b"D" + wire.insert(16401, [b"a", b"b"])[1:])]),
        ("a binary column", [*BEFORE, framed(wire.insert(16401, [b"a", b"b"]).replace(b"t\0", b"b\0"))]),
        ("a Relation message described too late", [BEFORE[0], CHANGES[0], BEFORE[1]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.usefixtures("each_way")
def test_what_the_protocol_does_not_allow_is_refused(wrong: str, frames: list[bytes]) -> None:
    for size in (1, len(frames)):
        with pytest.raises(ProtocolError):
            decode(frames, size)


@pytest.mark.behaviour("O6")
def test_an_error_never_shows_what_a_row_holds() -> None:
    secret = b"hunter2secret"
    sound = wire.insert(16400, [b"1", secret, secret])
    for length in range(6, len(sound)):
        with pytest.raises(ProtocolError) as refused:
            decode([*BEFORE, framed(sound[:length])], 100)
        assert "hunter" not in str(refused.value)


@pytest.mark.usefixtures("each_way")
def test_some_thousands_of_damaged_streams() -> None:
    random = Random(20_240_229)
    accepted = 0
    for _ in range(QUICK_CASES):
        stream = list(STREAM)
        for _ in range(random.choice((1, 1, 2))):
            index = random.randrange(len(stream))
            stream[index] = mutated(stream[index], random)
        accepted += agree(stream)
    assert accepted > QUICK_CASES // 20, "nearly everything was refused: this tests nothing"


@pytest.mark.usefixtures("each_way")
def test_some_thousands_of_damaged_changes() -> None:
    random = Random(20_000_101)
    judge = ManyChanges()
    for _ in range(QUICK_CASES // BATCH):
        judge.judge(damaged_changes(random, BATCH))
    assert judge.read > QUICK_CASES // 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cases", [SLOW_CASES, pytest.param(SOAK_CASES, marks=pytest.mark.soak)])
def test_very_many_damaged_frames(cases: int) -> None:
    with ProcessPoolExecutor(SHARES, mp_context=get_context("spawn")) as pool:
        read = sum(pool.map(judge_a_share, range(SHARES), [cases // SHARES] * SHARES))
    assert read > cases // 20


def judge_a_share(share: int, cases: int) -> int:
    """A part of the cases, in a process of its own; how many of its frames could be read."""
    random = Random(1_000_003 + share)
    judge = ManyChanges()
    whole_streams = cases // WHOLE_STREAM_SHARE
    for _ in range((cases - whole_streams) // BATCH):
        judge.judge(damaged_changes(random, BATCH))
    for _ in range(whole_streams):
        index = random.randrange(len(STREAM))
        agree([*STREAM[:index], mutated(STREAM[index], random), *STREAM[index + 1 :]])
    return judge.read


def damaged_changes(random: Random, count: int) -> list[tuple[bytes, bytes]]:
    return [(original, mutated(original, random)) for original in random.choices(CHANGES, k=count)]


def agree(frames: Sequence[bytes]) -> bool:
    """True when both decoders read the stream, and the same; False when it was refused."""
    found = columnar(frames)
    if found is None:
        return False
    try:
        expected = naive_changes(b"".join(frames))
    except NaiveError as reason:
        pytest.fail(f"read although {reason}: {b''.join(frames).hex()}")
    assert found == expected
    return True


def columnar(frames: Sequence[bytes]) -> list[NaiveChange] | None:
    try:
        return flatten_all(decode(frames, len(frames)))
    except ProtocolError:
        return None


class ManyChanges:
    """Judges damaged changes in bulk: those that the plain decoder can read in one block, the others one by one."""

    def __init__(self) -> None:
        self.read = 0
        self._oracle = NaiveDecoder()
        self._oracle.stream(b"".join(BEFORE))
        self._primed = self._prime()

    def judge(self, damaged: Sequence[tuple[bytes, bytes]]) -> None:
        """Pairs of a sound change and what became of it."""
        sound = []
        for original, frame in damaged:
            if frame[30:31] not in {b"I", b"U", b"D", b"T", b"M"}:
                agree([*BEFORE, frame, *CHANGES])  # it may move a transaction's bounds or a table's shape
            elif self._readable(frame):
                sound.append(frame)
            else:
                self._must_refuse(original, frame)
        self._must_read(sound)
        piece = block(CHANGES[:1])
        assert len(self._primed.decode(piece.data, piece.offsets)) == 1, "the refusals came from a decoder beyond use"

    def _readable(self, frame: bytes) -> bool:
        try:
            self._oracle.fork().payload(frame[5:])
        except NaiveError:
            return False
        return True

    def _must_refuse(self, original: bytes, frame: bytes) -> None:
        """Before a sound neighbour that has bytes to steal, in the primed decoder's open transaction."""
        piece = block([frame, original])
        try:
            self._primed.decode(piece.data, piece.offsets)
        except ProtocolError:
            return
        pytest.fail(f"read what the plain decoder refuses: {frame.hex()}")

    def _must_read(self, frames: Sequence[bytes]) -> None:
        """As the plain decoder does, or refuse: then halves tell which one, and whether the others are read well."""
        if not frames:
            return
        if agree([*BEFORE, *frames, *AFTER]):
            self.read += len(frames)
        elif len(frames) > 1:
            self._must_read(frames[: len(frames) // 2])
            self._must_read(frames[len(frames) // 2 :])

    @staticmethod
    def _prime() -> Decoder:
        primed = decoder()
        piece = block(BEFORE)
        primed.decode(piece.data, piece.offsets)
        return primed
