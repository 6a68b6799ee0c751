"""The format `debezium-avro`: Debezium's events in Avro, in the frame of a schema registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Literal, assert_never

from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.events.avro.batch import AvroBatch, Writers
from psql_streamer.events.avro.record_schemas import RecordSchema
from psql_streamer.events.debezium.format import Debezium
from psql_streamer.events.format import Format, FormatOptions, FormatProblem
from psql_streamer.interfaces import Severity
from psql_streamer.model import Batch
from psql_streamer.registry.checking import find_problems
from psql_streamer.registry.errors import RegistryRefused, RegistryUnavailable
from psql_streamer.registry.frames import make_frame
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.subjects import Subjects

SubjectNames = Literal["topic", "record", "topicRecord"]


class DebeziumAvroOptions(FormatOptions):
    """[sink.NAME.formatOptions] of the format `debezium-avro`.

    registry: where schemas are. auto_register: whether schemas that it does not have are registered; otherwise they
    must be there. subject: what schemas are registered under: `<topic>-key` and `<topic>-value`, the record's name, or
    `<topic>-<record's name>`, as Confluent's strategies have it.
    """

    registry: RegistryOptions
    auto_register: bool = True
    subject: SubjectNames = "topic"

    def list_topic_warnings(self, shared: Sequence[str]) -> Iterable[str]:
        """Schemas of other records are no versions of each other."""
        if self.subject == "topic" and shared:
            yield (
                f"several tables may go to the topic {shared[0]}, and the registry takes their schemas for versions of "
                'one: set subject = "topicRecord"'
            )


class DebeziumAvro(Format):
    """Events as AvroBatch makes them, and a tombstone after each delete. transactions: as Debezium."""

    Options = DebeziumAvroOptions
    section_keys = MappingProxyType({"debezium_transactions": "transactions"})
    tombstones = True
    marks = True
    row_by_row = True
    checksums = False
    frames = True

    def __init__(self, options: DebeziumAvroOptions, transactions: bool = False) -> None:
        super().__init__(options)
        self._registry = options.registry
        self._subject = options.subject
        self._transactions = transactions
        self._writers = Writers()
        self._subjects = Subjects(options.registry, options.auto_register)

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003 - they say nothing of it
        return section.get("transactions", False)

    def prepare(self, batch: Batch) -> AvroBatch:
        self._subjects.begin()
        return AvroBatch(batch, self._writers, self._transactions, self._frame)

    def find_readable(self) -> Debezium:
        return Debezium(FormatOptions(), transactions=self._transactions)

    def find_problems(self) -> Iterable[FormatProblem]:
        for finding in find_problems(self._registry):
            yield FormatProblem(finding.problem, finding.remedy, finding.severity is Severity.ERROR)

    def describe_wait(self) -> str:
        return self._subjects.describe_wait()

    def interrupt(self) -> None:
        self._subjects.interrupt()

    def stop(self) -> None:
        self._subjects.stop()

    def _frame(self, topic: str, is_key: bool, schema: RecordSchema) -> bytes:
        subject = _name_subject(self._subject, topic, is_key, schema.name)
        try:
            return make_frame(self._subjects.find_id(subject, schema.text, of_keys=is_key))
        except RegistryUnavailable as error:
            raise SinkUnavailable(error.what, error.remedy) from None
        except RegistryRefused as error:
            raise SinkRefused(error.what, error.remedy) from None


def _name_subject(names: SubjectNames, topic: str, is_key: bool, record: str) -> str:
    match names:
        case "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        case "record":
            return record
        case "topicRecord":
            return f"{topic}-{record}"
        case _:
            assert_never(names)
