"""The format `debezium-avro` with ids that are given here, without a registry; and its records read by fastavro."""

from __future__ import annotations

import io
import json
from typing import Any
from zlib import crc32

import fastavro

from psql_streamer.events.avro.batch import AvroBatch, Writers
from psql_streamer.events.avro.format import DebeziumAvro
from psql_streamer.events.avro.record_schemas import RecordSchema
from psql_streamer.events.format import Format, FormatOptions
from psql_streamer.model import Batch
from psql_streamer.registry.frames import find_frame, make_frame


class AvroWithoutRegistry(Format):
    """The id of a schema is made of its text. asked: topics, whether of keys, and texts. schemas: by id, as fastavro
    reads them.
    """

    tombstones = DebeziumAvro.tombstones
    marks = DebeziumAvro.marks
    row_by_row = DebeziumAvro.row_by_row
    checksums = DebeziumAvro.checksums
    frames = DebeziumAvro.frames

    def __init__(self, transactions: bool = False) -> None:
        super().__init__(FormatOptions())
        self._transactions = transactions
        self._writers = Writers()
        self.asked: list[tuple[str, bool, str]] = []
        self.schemas: dict[int, Any] = {}

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003 - it has none
        return section.get("transactions", False)

    def prepare(self, batch: Batch) -> AvroBatch:
        return AvroBatch(batch, self._writers, self._transactions, self._frame)

    def read(self, data: bytes | None) -> Any:
        """What a record's key or value says: decimals are bytes, as in Debezium's JSON they are base64 of these."""
        frame = find_frame(data)
        if frame is None:
            return data
        stream = io.BytesIO(frame.payload)
        read = fastavro.schemaless_reader(stream, self.schemas[int(frame.schema)], None)
        assert not stream.read(), "bytes are left over"
        return read

    def _frame(self, topic: str, is_key: bool, schema: RecordSchema) -> bytes:
        self.asked.append((topic, is_key, schema.text))
        made = crc32(schema.text.encode()) >> 1
        if made not in self.schemas:
            self.schemas[made] = fastavro.parse_schema(_forget_logical_types(json.loads(schema.text)))
        return make_frame(made)


def _forget_logical_types(schema: Any) -> Any:
    """So that fastavro gives the bytes of decimals, which may have more digits than their precision says."""
    match schema:
        case dict():
            return {name: _forget_logical_types(one) for name, one in schema.items() if name != "logicalType"}
        case list():
            return [_forget_logical_types(one) for one in schema]
        case _:
            return schema
