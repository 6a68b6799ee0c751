"""Keys in a file that goes with the process, so that any number of them can be posted, from any one on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from itertools import islice
from typing import Self

from psql_streamer.errors import StreamerError
from psql_streamer.event_reader.keys import decode_key_columns

_LONGEST = 256 << 10
"""Bytes of a key; several must be posted at once."""

_KEYS_A_MARK = 1000


class KeyFile:
    """A JSON object a line, each checked to be one. Its keys are numbered from 0."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._marks: list[int] = []  # where every so many keys begin
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def add(self, documents: Iterable[bytes], where: str) -> None:
        """StreamerError for what is no key, which names its line. Lines without anything are left out."""
        for number, line in enumerate(documents, 1):
            document = line.strip()
            if not document:
                continue
            if len(document) > _LONGEST:
                raise StreamerError(f"{where}: key {number} is longer than {_LONGEST} bytes", "leave it out")
            if b"\n" in document or not decode_key_columns(document):
                raise StreamerError(
                    f"{where}: key {number} is no JSON object with the key's columns by name", 'write {"id": 1}, say'
                )
            if self._count % _KEYS_A_MARK == 0:
                self._marks.append(self._file.tell())
            self._file.write(document + b"\n")
            self._count += 1

    def read_block(self, first: int, most_keys: int, most_bytes: int) -> list[bytes]:
        """Keys from one on; one at least, if there are any."""
        if first >= self._count:
            return []
        self._file.seek(self._marks[first // _KEYS_A_MARK])
        found: list[bytes] = []
        size = 0
        for line in islice(self._file, first % _KEYS_A_MARK, first % _KEYS_A_MARK + most_keys):
            size += len(line)
            if found and size > most_bytes:
                break
            found.append(line[:-1])
        return found
