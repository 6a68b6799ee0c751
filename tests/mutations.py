"""Damages CopyData frames: the payload is changed, the frame around it stays sound."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests import pgoutput_wire as wire

_FRAME_HEADER = 5
_NUMBERS = (0, 1, 2, 4, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)
_LETTERS = b"ntubNKOIUDTMRBCYOwk\0\xff"


def mutated(frame: bytes, random: Random) -> bytes:
    """The frame with one to three damages, most often one."""
    payload = bytearray(frame[_FRAME_HEADER:])
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_DAMAGES)(payload, random)
    return wire.copy_data(bytes(payload))


def _flip_a_bit(payload: bytearray, random: Random) -> None:
    if payload:
        payload[_place(payload, random)] ^= 1 << random.randrange(8)


def _set_a_letter(payload: bytearray, random: Random) -> None:
    if payload:
        payload[_place(payload, random)] = random.choice(_LETTERS)


def _set_a_number(payload: bytearray, random: Random) -> None:
    size = random.choice((2, 4))
    at = _place(payload, random)
    payload[at : at + size] = (random.choice(_NUMBERS) % 256**size).to_bytes(size)


def _nudge_a_byte(payload: bytearray, random: Random) -> None:
    if payload:
        at = _place(payload, random)
        payload[at] = (payload[at] + random.choice((-2, -1, 1, 2))) % 256


def _cut_the_end(payload: bytearray, random: Random) -> None:
    del payload[_place(payload, random) :]


def _cut_a_few_bytes_off(payload: bytearray, random: Random) -> None:
    del payload[max(0, len(payload) - random.randint(1, 8)) :]


def _cut_out(payload: bytearray, random: Random) -> None:
    at = _place(payload, random)
    del payload[at : at + random.randint(1, 8)]


def _put_in(payload: bytearray, random: Random) -> None:
    at = _place(payload, random)
    payload[at:at] = random.randbytes(random.randint(1, 8))


def _append(payload: bytearray, random: Random) -> None:
    payload += random.randbytes(random.randint(1, 8))


def _repeat(payload: bytearray, random: Random) -> None:
    at = _place(payload, random)
    payload[at:at] = payload[at : at + random.randint(1, 12)]


_DAMAGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip_a_bit,
    _set_a_letter,
    _set_a_number,
    _nudge_a_byte,
    _cut_the_end,
    _cut_a_few_bytes_off,
    _cut_out,
    _put_in,
    _append,
    _repeat,
)


def _place(payload: bytearray, random: Random) -> int:
    return random.randrange(len(payload)) if payload else 0
