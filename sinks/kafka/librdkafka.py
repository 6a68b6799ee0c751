"""The part of librdkafka's C API that takes whole columns of records, by ctypes. Layouts and numbers: rdkafka.h.

confluent-kafka brings the library, and its binding makes three Python objects a record; rd_kafka_produce_batch takes a
table of pointers, which numpy fills from Arrow's buffers. The C API is stable: a field is never moved.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from confluent_kafka import KafkaError, KafkaException, cimpl

Pointer = ctypes.c_void_p
Handle: TypeAlias = Any
"""A pointer as ctypes gives it: an int, None for NULL."""

PRODUCER = 0  # RD_KAFKA_PRODUCER
EACH_ITS_PARTITION = 0x8  # RD_KAFKA_MSG_F_PARTITION: messages say where they go, -1 leaves it to the partitioner
PURGE_ALL = 0x1 | 0x2  # RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT

EVENT_DELIVERY = 0x1  # RD_KAFKA_EVENT_DR
EVENT_LOG = 0x4
EVENT_ERROR = 0x8

MESSAGE = np.dtype(
    {
        "names": ["error", "partition", "value", "value_size", "key", "key_size", "opaque"],
        "formats": ["i4", "i4", "u8", "u8", "u8", "u8", "u8"],
        "offsets": [0, 16, 24, 32, 40, 48, 64],
        "itemsize": 72,
    }
)
"""rd_kafka_message_t on a 64-bit machine. `opaque` comes back with the delivery report."""

ONE_MESSAGE = struct.Struct("=i12xi4xQQQQ8xQ")
"""The same of one message."""

FIELD = np.dtype(
    {
        "names": ["kind", "pointer", "second", "size"],
        "formats": ["i4", "u8", "u8", "i8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 72,
    }
)
"""rd_kafka_vu_t, one argument of rd_kafka_produceva: a header has a name, a value and a size, memory the first two."""

FIELD_TOPIC, FIELD_PARTITION, FIELD_VALUE, FIELD_KEY, FIELD_OPAQUE, FIELD_TIMESTAMP, FIELD_HEADER = 2, 3, 4, 5, 6, 8, 9


class Message(ctypes.Structure):
    """rd_kafka_message_t, as delivery reports point to it."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", Pointer),
        ("partition", ctypes.c_int32),
        ("value", Pointer),
        ("value_size", ctypes.c_size_t),
        ("key", Pointer),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", Pointer),
    )


class MetadataPartition(ctypes.Structure):
    """rd_kafka_metadata_partition."""

    _fields_ = (
        ("id", ctypes.c_int32),
        ("error", ctypes.c_int),
        ("leader", ctypes.c_int32),
        ("replica_count", ctypes.c_int),
        ("replicas", Pointer),
        ("in_sync_count", ctypes.c_int),
        ("in_sync", Pointer),
    )


class MetadataTopic(ctypes.Structure):
    """rd_kafka_metadata_topic."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("partition_count", ctypes.c_int),
        ("partitions", ctypes.POINTER(MetadataPartition)),
        ("error", ctypes.c_int),
    )


class Metadata(ctypes.Structure):
    """rd_kafka_metadata."""

    _fields_ = (
        ("broker_count", ctypes.c_int),
        ("brokers", Pointer),
        ("topic_count", ctypes.c_int),
        ("topics", ctypes.POINTER(MetadataTopic)),
    )


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t, up to the metadata, which are the list's to free."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", Pointer),
        ("metadata_size", ctypes.c_size_t),
    )


_IDEMPOTENCE = "enable.idempotence"

_TEXT, _INT, _SIZE = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t

_FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "conf_new": (Pointer, ()),
    "conf_destroy": (None, (Pointer,)),
    "conf_get": (_INT, (Pointer, _TEXT, _TEXT, ctypes.POINTER(ctypes.c_size_t))),
    "conf_set": (_INT, (Pointer, _TEXT, _TEXT, _TEXT, _SIZE)),
    "conf_set_events": (None, (Pointer, _INT)),
    "new": (Pointer, (_INT, Pointer, _TEXT, _SIZE)),
    "destroy": (None, (Pointer,)),
    "set_log_queue": (_INT, (Pointer, Pointer)),
    "topic_new": (Pointer, (Pointer, _TEXT, Pointer)),
    "topic_destroy": (None, (Pointer,)),
    "last_error": (_INT, ()),
    "produce_batch": (_INT, (Pointer, ctypes.c_int32, _INT, Pointer, _INT)),
    "produceva": (Pointer, (Pointer, Pointer, _SIZE)),
    "init_transactions": (Pointer, (Pointer, _INT)),
    "begin_transaction": (Pointer, (Pointer,)),
    "send_offsets_to_transaction": (Pointer, (Pointer, Pointer, Pointer, _INT)),
    "commit_transaction": (Pointer, (Pointer, _INT)),
    "consumer_group_metadata_read": (Pointer, (ctypes.POINTER(Pointer), _TEXT, _SIZE)),
    "consumer_group_metadata_generation_id": (ctypes.c_int32, (Pointer,)),
    "consumer_group_metadata_member_id": (_TEXT, (Pointer,)),
    "consumer_group_metadata_destroy": (None, (Pointer,)),
    "topic_partition_list_new": (Pointer, (_INT,)),
    "topic_partition_list_add": (ctypes.POINTER(TopicPartition), (Pointer, _TEXT, ctypes.c_int32)),
    "topic_partition_list_destroy": (None, (Pointer,)),
    "mem_malloc": (Pointer, (Pointer, _SIZE)),
    "fatal_error": (_INT, (Pointer, _TEXT, _SIZE)),
    "error_code": (_INT, (Pointer,)),
    "error_string": (_TEXT, (Pointer,)),
    "error_is_retriable": (_INT, (Pointer,)),
    "error_destroy": (None, (Pointer,)),
    "outq_len": (_INT, (Pointer,)),
    "flush": (_INT, (Pointer, _INT)),
    "purge": (_INT, (Pointer, _INT)),
    "metadata": (_INT, (Pointer, _INT, Pointer, ctypes.POINTER(ctypes.POINTER(Metadata)), _INT)),
    "metadata_destroy": (None, (ctypes.POINTER(Metadata),)),
    "queue_get_main": (Pointer, (Pointer,)),
    "queue_poll": (Pointer, (Pointer, _INT)),
    "queue_destroy": (None, (Pointer,)),
    "event_type": (_INT, (Pointer,)),
    "event_message_next": (ctypes.POINTER(Message), (Pointer,)),
    "event_error": (_INT, (Pointer,)),
    "event_error_string": (_TEXT, (Pointer,)),
    "event_error_is_fatal": (_INT, (Pointer,)),
    "event_log": (_INT, (Pointer, *(ctypes.POINTER(kind) for kind in (_TEXT, _TEXT, _INT)))),
    "event_destroy": (None, (Pointer,)),
}
"""Name without its prefix -> result, arguments."""


def _look_up_functions(library: ctypes.CDLL) -> SimpleNamespace:
    """The functions of _FUNCTIONS by name."""
    # What is looked up in a library is looked for in those that it was linked with, too (dlsym).
    found = SimpleNamespace()
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"rd_kafka_{name}", None)
        if function is None:
            raise ImportError(f"{cimpl.__file__} has no rd_kafka_{name}: install confluent-kafka's own wheel")
        function.restype, function.argtypes = result, arguments
        setattr(found, name, function)
    return found


rdkafka = _look_up_functions(ctypes.CDLL(cimpl.__file__))
"""Each lets go of the interpreter's lock while it runs."""

rdkafka_at_once = _look_up_functions(ctypes.PyDLL(cimpl.__file__))
"""The same, for calls that wait for nothing and take microseconds. Each keeps the lock: another thread that is at work
gives it back after sys.getswitchinterval(), 5 ms. No callback into Python is set in any client, so none waits for it.
"""


def make_configuration(properties: Mapping[str, str]) -> Handle:
    """A new rd_kafka_conf_t. KafkaException for a property that librdkafka does not take."""
    conf, reason = rdkafka.conf_new(), ctypes.create_string_buffer(512)
    for name, value in properties.items():
        if rdkafka.conf_set(conf, name.encode(), value.encode(), reason, len(reason)):
            rdkafka.conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason.value.decode(errors="replace")))
    return conf


def resolve_properties(properties: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The values that these properties get, in librdkafka's own spelling, whatever name or alias sets them; "" where
    nothing does. KafkaException for a property that librdkafka does not take.
    """
    conf = make_configuration(properties)
    try:
        return {name: _read_property(conf, name) for name in names}
    finally:
        rdkafka.conf_destroy(conf)


def is_idempotent(properties: Mapping[str, str]) -> bool:
    """Whether brokers know a request that is sent again by its number. Raises as resolve_properties."""
    return resolve_properties(properties, [_IDEMPOTENCE])[_IDEMPOTENCE] == "true"


def _read_property(conf: Handle, name: str) -> str:
    text, size = ctypes.create_string_buffer(512), ctypes.c_size_t(512)
    known = rdkafka.conf_get(conf, name.encode(), text, ctypes.byref(size)) == 0
    return _decode_text(text.value) if known else ""


def make_client(conf: Handle) -> Handle:
    """A new producer, which owns the configuration. KafkaException when it does not start."""
    reason = ctypes.create_string_buffer(512)
    handle = rdkafka.new(PRODUCER, conf, reason, len(reason))
    if not handle:
        code = rdkafka.last_error()
        rdkafka.conf_destroy(conf)
        raise KafkaException(KafkaError(code, reason.value.decode(errors="replace")))
    return handle


def read_metadata(handle: Handle, only: Handle, milliseconds: int, known: bool = False) -> list[tuple[str, int, int]]:
    """Name, number of partitions and error code of one topic (its rd_kafka_topic_t), or with None of all that exist;
    of all that the client knows with `known`, whether they exist or not.

    KafkaException when no broker answers in time.
    """
    with _hold_metadata(handle, only, milliseconds, only is None and not known) as topics:
        return [(_decode_text(topic.name), topic.partition_count, topic.error) for topic in topics]


def read_partitions(
    handle: Handle, wanted: Container[str], milliseconds: int
) -> dict[str, list[tuple[bool, int, int]]]:
    """Every partition of the wanted topics that exist: whether it has a leader, how many replicas, how many of them are
    in sync. Makes no topic. KafkaException when no broker answers in time.
    """
    with _hold_metadata(handle, None, milliseconds, True) as topics:
        return {name: _list_partition_states(topic) for topic in topics if (name := _decode_text(topic.name)) in wanted}


@contextmanager
def _hold_metadata(handle: Handle, only: Handle, milliseconds: int, every: bool) -> Iterator[Sequence[MetadataTopic]]:
    found = ctypes.POINTER(Metadata)()
    code = rdkafka.metadata(handle, every, only, ctypes.byref(found), milliseconds)
    if code:
        raise KafkaException(KafkaError(code))
    try:
        yield found.contents.topics[: found.contents.topic_count]
    finally:
        rdkafka.metadata_destroy(found)


def _list_partition_states(topic: MetadataTopic) -> list[tuple[bool, int, int]]:
    found = topic.partitions[: topic.partition_count]
    return [(partition.leader >= 0, partition.replica_count, partition.in_sync_count) for partition in found]


def list_messages(event: Handle) -> Iterator[Message]:
    """The messages of a delivery report; they live as long as the event."""
    while message := rdkafka.event_message_next(event):
        yield message.contents


def read_log_line(event: Handle) -> tuple[int, str]:
    """Syslog's severity, and the text."""
    facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
    rdkafka.event_log(event, facility, text, level)
    return level.value, f"{_decode_text(facility.value)}: {_decode_text(text.value)}"


def read_error(event: Handle) -> KafkaError:
    """What an error event says."""
    return KafkaError(rdkafka.event_error(event), _decode_text(rdkafka.event_error_string(event)))


def _decode_text(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")
