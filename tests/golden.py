"""Events of captured streams and of snapshots in every format, as kept in tests/data/golden.
`python -m tests.golden` writes them anew.

A line is a record: its topic, and key, value and headers as they are, which makes it JSON. psql-streamer's version,
which changes with every release, reads `VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from psql_streamer import __version__
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.json.json_text import render_name
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.frames import FrameBuffer
from psql_streamer.pgoutput.full_identity import Asked, CatalogKey
from psql_streamer.pgtypes.catalog import TypeCatalog, TypeRow
from tests.capture_streams import CAPTURED
from tests.decoding import BEGINNING, SOURCE
from tests.encoding import encoder_of
from tests.snapshots import ON_DEMAND, chunk

GOLDEN = Path(__file__).parent / "data" / "golden"

SCENARIOS = ("identities", "toast", "types", "truncates_and_messages")
TABLES = ("by_key", "whole", "by_index", "dots.and spaces", "typed", "parent", "child", "other", "notes")
"""Those that have a key, if only one that the test knows of: the format `flat` takes no others."""

FORMATS = {
    "event": encoder_of("event", Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"), {}),
    "envelope": encoder_of("envelope", Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"), {}),
    "debezium": encoder_of("debezium", Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"), {}),
    "debezium_schemas": encoder_of(
        "debezium", Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"), {}, schemas=True
    ),
    "debezium_transactions": encoder_of(
        "debezium",
        Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"),
        {},
        schemas=True,
        transaction_topic="transactions",
    ),
    "flat": encoder_of("flat", Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages"), {}),
}
"""File name -> what encodes for it."""


def lines(encoder: Encoder) -> list[bytes]:
    """Every record of the captured streams and of the snapshots."""
    return [line for batch in batches() for line in _lines(encoder, batch)]


def read(form: str) -> list[bytes]:
    """What the golden file holds."""
    return (GOLDEN / f"{form}.jsonl").read_bytes().splitlines()


def batches() -> Iterator[Batch]:
    """The captured streams, each from its beginning and as one batch, and rows of two snapshots."""
    for scenario in SCENARIOS:
        frames = FrameBuffer()
        frames.feed((CAPTURED / f"pg16_{scenario}.bin").read_bytes())
        block = frames.take(1 << 30, 1 << 30)
        assert block is not None
        yield Decoder(SOURCE, BEGINNING, _types().resolve, _keys, transaction_metadata=True).decode(
            block.data, block.offsets
        )
    yield chunk()
    yield chunk(snapshot=ON_DEMAND, commit=28_268_000)


def _types() -> TypeCatalog:
    """What the catalog said of the types of `typed` when it was captured: an enum and a composite."""
    mood = TypeRow(16531, "mood", "e", 0, 0, ",", 0, -1, labels=("sad", "happy"))
    pair = TypeRow(16537, "pair", "c", 0, 0, ",", 0, -1, (("left_one", 23, -1), ("right_one", 25, -1)))
    return TypeCatalog([mood, pair])


def _keys(asked: Sequence[Asked]) -> Sequence[CatalogKey]:
    return [CatalogKey(("id",) if one.relation.table == "whole" else ()) for one in asked]


def _lines(encoder: Encoder, batch: Batch) -> Iterator[bytes]:
    records = encoder.encode(batch)
    headers = {header: column.to_pylist() for header, column in records.headers.items()}
    columns = records.topics.tolist(), records.keys.to_pylist(), records.values.to_pylist()
    for row, (topic, key, value) in enumerate(zip(*columns, strict=True)):
        held = {header: values[row] for header, values in headers.items() if values[row] is not None}
        line = b'{"topic":%s,"key":%s,"value":%s,"headers":{%s}}' % (
            render_name(records.topic_names[topic]),
            key or b"null",
            value or b"null",
            b",".join(b"%s:%s" % (render_name(header), _text(text)) for header, text in held.items()),
        )
        yield line.replace(b'"version":"%s"' % __version__.encode(), b'"version":"VERSION"')


def _text(text: bytes) -> bytes:
    return render_name(text.decode())


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for form, encoder in FORMATS.items():
        (GOLDEN / f"{form}.jsonl").write_bytes(b"\n".join([*lines(encoder), b""]))


if __name__ == "__main__":
    main()
