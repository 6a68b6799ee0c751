"""Formats as parts: found by name, made once for a sink from its options, and asked what they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pydantic import SecretStr, ValidationError, field_validator, model_validator

from psql_streamer.config import load
from psql_streamer.entry_points import Kind, list_names
from psql_streamer.errors import SinkUnavailable
from psql_streamer.events.debezium.format import Debezium
from psql_streamer.events.format import BatchFormat, Format, FormatOptions, RowTexts
from psql_streamer.events.options import EventOptions
from psql_streamer.events.rows import Rows
from psql_streamer.interfaces import Severity, Status
from psql_streamer.model import Batch, LogicalMessage, ReplicaIdentity, Truncate
from sinks.kafka.sink import KafkaSink
from tests.columns import postgres_column, postgres_table
from tests.config_files import MINIMAL, problems_of, with_line, written
from tests.decoding import decode
from tests.kafka_sinks import options
from tests.pgoutput_wire import WireColumn, WireRelation, begin, commit, copy_data, insert, relation, xlog_data

TABLE = WireRelation(16400, "public", "orders", (WireColumn("id", 20, key=True),))
HERE = __name__
REGISTERED = f'format = "{HERE}:Registered"\nformatOptions = {{ registryUrl = "http://registry:8081", idLength = 2 }}'


class RegistryOptions(FormatOptions):
    registry_url: str
    id_length: int = 4
    token: SecretStr | None = None
    careless: bool = False

    @field_validator("registry_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not value.startswith("http"):
            raise ValueError("is not a URL")
        return value

    def list_resources(self) -> Iterable[str]:
        return [f"the subjects of {self.registry_url}"]

    def list_warnings(self) -> Iterable[str]:
        return ["registryUrl is not https: anybody can read along"] if self.registry_url.startswith("http:") else []

    @model_validator(mode="after")
    def _quotes(self) -> RegistryOptions:
        if self.careless and self.token:
            raise ValueError(f"the token {self.token.get_secret_value()} is wrong")
        return self


class Registered(Format):
    """Values with an id in front, which a client would have asked a registry for."""

    Options = RegistryOptions
    needs_key = True
    made: ClassVar[list[Registered]] = []

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__(options)
        self.prefix = bytes(options.id_length)
        self.batches = self.stops = 0
        self.made.append(self)

    def prepare(self, batch: Batch) -> BatchFormat:
        self.batches += 1
        return RegisteredBatch(batch, self.prefix)

    def stop(self) -> None:
        self.stops += 1


class Telling(Registered):
    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003
        return True


class Unregistered(Registered):
    def prepare(self, batch: Batch) -> BatchFormat:  # noqa: ARG002 - it comes no further
        raise SinkUnavailable("no answer from the registry", "look whether it runs")


class MoreDebezium(Debezium):
    """Debezium's events with something of one's own."""


class RegisteredBatch(BatchFormat):
    def __init__(self, batch: Batch, prefix: bytes) -> None:
        super().__init__(batch)
        self.prefix = prefix

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
        return pa.array([self.prefix] * len(rows), pa.binary())

    def render_truncate(self, truncate: Truncate) -> bytes | None:  # noqa: ARG002
        return None

    def render_message(self, message: LogicalMessage) -> bytes:  # noqa: ARG002
        return self.prefix


@pytest.fixture
def made() -> Iterator[list[Registered]]:
    """The formats that a test makes."""
    Registered.made.clear()
    yield Registered.made
    Registered.made.clear()


def batches() -> list[Batch]:
    """Two of them."""
    messages = [begin(100, 0, 7), relation(TABLE), insert(16400, (b"1",)), insert(16400, (b"2",)), commit(100, 120, 0)]
    found = decode([copy_data(xlog_data(message)) for message in messages], 3)
    assert [len(batch) for batch in found] == [1, 1]
    return found


def with_format(lines: str) -> str:
    return with_line(MINIMAL, "[sink.kafka1]", lines)


def test_the_formats_that_ship_are_entry_points() -> None:
    assert list_names(Kind.FORMAT) == ("debezium", "debezium-avro", "envelope", "event", "flat")


def test_a_format_of_ones_own_is_made_once_for_a_sink_with_its_options(made: list[Registered], tmp_path: Path) -> None:
    sink = load(written(tmp_path, with_format(REGISTERED)), {}).sinks["kafka1"].build()
    assert isinstance(sink, KafkaSink)
    values = [sink._encoder.encode(batch).values.to_pylist() for batch in batches()]
    assert values == [[b"\0\0"], [b"\0\0"]]
    sink.stop()
    assert [(form.batches, form.stops) for form in made] == [(2, 1)]


def test_options_of_a_format_are_validated_where_they_are_given_to_the_class() -> None:
    section = options("a:1", format=f"{HERE}:Registered", formatOptions={"registryUrl": "http://r", "idLength": 1})
    assert section.format_options == RegistryOptions(registry_url="http://r", id_length=1)
    assert section.make_format().options is section.format_options
    with pytest.raises(ValidationError, match=r"registryUrl\n +Field required"):
        options("a:1", format=f"{HERE}:Registered")


def test_variables_set_options_of_a_format(tmp_path: Path) -> None:
    environ = {
        "PSQL_STREAMER__SINK__KAFKA1__FORMAT": f"{HERE}:Registered",
        "PSQL_STREAMER__SINK__KAFKA1__FORMAT_OPTIONS__REGISTRY_URL": "http://r",
    }
    section = load(written(tmp_path, MINIMAL), environ).sinks["kafka1"].options
    assert isinstance(section, EventOptions)
    assert section.format_options == RegistryOptions(registry_url="http://r")


def test_options_of_a_format_warn_and_claim_things_like_those_of_a_sink(tmp_path: Path) -> None:
    config = load(written(tmp_path, with_format(REGISTERED)), {})
    assert [warning.partition("sink.kafka1: ")[2] for warning in config.warnings] == [
        "formatOptions: registryUrl is not https: anybody can read along"
    ]
    one = f"format = '{HERE}:Registered'\nformatOptions = {{ registryUrl = 'https://r' }}\n"
    sink = MINIMAL.partition("[sink.kafka1]")[2]
    (problem,) = problems_of(tmp_path, f"{with_format(one)}[sink.other]\n{one}{sink}")
    assert "sink.other: the subjects of https://r is already used by sink.kafka1" in problem


OWN = f"format = '{HERE}:Registered'\nformatOptions = "
REMEDY = "install the package that it is part of, or correct package.module:Class"
BASE = "it must be a subclass of psql_streamer.events.format.Format"
PROBLEMS = {
    "a name that is near": ("format = 'evnt'", '.format: "evnt" is not a known format; did you mean event?'),
    "a name that is not": (
        "format = 'protobuf'",
        '.format: "protobuf" is not a known format; known: debezium, debezium-avro, envelope, event, flat',
    ),
    "a number": ("format = 5", ".format: 5 is not allowed: must be a string"),
    "a module that is not there": (
        "format = 'nowhere.at_all:Mine'",
        f".format: \"nowhere.at_all:Mine\" is not allowed: cannot be imported: No module named 'nowhere': {REMEDY}",
    ),
    "a class that is no format": (
        f"format = '{HERE}:RegistryOptions'",
        f'.format: "{HERE}:RegistryOptions" is not a format: {BASE}',
    ),
    "options for a format that has none": (
        "formatOptions = { pretty = true }",
        ".formatOptions: unknown key pretty",
    ),
    "options of debezium that stand in the section": (
        "format = 'debezium'\nformatOptions = { schemas = true }",
        ".formatOptions: unknown key schemas",
    ),
    "options that are no table": ("formatOptions = 1", ".formatOptions: 1 is not allowed: must be a table"),
    "a missing option": (f"{OWN}{{}}", ".formatOptions.registryUrl: is required"),
    "a missing table": (OWN.partition("\n")[0], ".formatOptions.registryUrl: is required"),
    "an unknown option": (
        f"{OWN}{{ registryUrl = 'http://r', idLenght = 1 }}",
        ".formatOptions: unknown key idLenght; did you mean idLength?",
    ),
    "a wrong value": (
        f"{OWN}{{ registryUrl = 'r' }}",
        '.formatOptions.registryUrl: "r" is not a URL',
    ),
    "another type": (
        f"{OWN}{{ registryUrl = 'http://r', idLength = 'x' }}",
        '.formatOptions.idLength: "x" is not allowed: must be a whole number',
    ),
    "a careless message": (
        f"{OWN}{{ registryUrl = 'http://r', token = 'hunter2', careless = true }}",
        ".formatOptions: is not allowed (the reason is not shown, it would show a part of a secret)",
    ),
    "debezium's schemas elsewhere": (
        f"{REGISTERED}\ndebeziumSchemas = true",
        f': debeziumSchemas has no meaning for format = "{HERE}:Registered": it belongs to "debezium"',
    ),
    "transactions without a topic": (
        REGISTERED.replace("Registered", "Telling"),
        f': format = "{HERE}:Telling" needs transactionTopic, where transactions begin and end',
    ),
}


@pytest.mark.parametrize("what", PROBLEMS)
def test_what_is_wrong_with_a_format_is_told_at_its_key(tmp_path: Path, what: str) -> None:
    lines, says = PROBLEMS[what]
    assert [problem.partition("sink.kafka1")[2] for problem in problems_of(tmp_path, with_format(lines))] == [says]


def test_a_format_that_tells_of_transactions_gets_their_metadata_and_its_topic() -> None:
    own = {"formatOptions": {"registryUrl": "http://r"}, "transactionTopic": "transactions"}
    assert KafkaSink("k", options("a:1", format=f"{HERE}:Telling", **own)).wants_transaction_metadata
    silent = options("a:1", format=f"{HERE}:Registered", **own)
    assert not KafkaSink("k", silent).wants_transaction_metadata
    assert list(silent.list_warnings())[:1] == ["transactionTopic has no effect without debeziumTransactions = true"]


def test_a_format_that_extends_debezium_has_its_keys_of_the_section() -> None:
    keys = {"debeziumSchemas": True, "debeziumTransactions": True, "transactionTopic": "transactions"}
    section = options("a:1", format=f"{HERE}:MoreDebezium", **keys)
    form = section.make_format()
    assert isinstance(form, MoreDebezium)
    assert (form.schemas, form.transactions, section.transactions_to) == (True, True, "transactions")


def test_a_batch_whose_format_gets_no_answer_is_tried_again() -> None:
    sink = KafkaSink("k", options("a:1", format=f"{HERE}:Unregistered", formatOptions={"registryUrl": "http://r"}))
    with pytest.raises(SinkUnavailable, match="no answer from the registry"):
        sink.write(batches()[0])
    assert sink.stats()["retries"] == 1
    assert sink.status() == Status(False, "no answer from the registry: look whether it runs")


def test_a_format_that_needs_keys_is_held_against_the_tables() -> None:
    section = options("a:1", format=f"{HERE}:Registered", formatOptions={"registryUrl": "http://r"}, handlers=["x"])
    published = {"db1": [postgres_table(1, "public", "log", ReplicaIdentity.DEFAULT, (postgres_column("note", 25),))]}
    (finding,) = (one for one in KafkaSink("k", section).review(published) if one.severity is Severity.ERROR)
    assert finding.problem == f'format "{HERE}:Registered" cannot take public.log: the rows have no key'
