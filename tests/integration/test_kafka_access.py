"""Brokers that do not know who connects, or do not let that user do what it wants."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.errors import SinkRefused, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, Severity
from sinks.kafka.sink import KafkaSink
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource
from tests.kafka_sinks import BATCH, Canned, Row, create_topic, options, started, wait_until

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "streamer",
    "sasl.password": "not-the-secret",
}

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" '
    'user_admin="secret" user_streamer="secret";'
)


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[tuple[str, str]]:
    """Two addresses of a broker: for its administrator, and for user streamer with the password secret."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    broker = EmbeddedKafka(
        properties={
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
    )
    # The broker picks its own plain listener; this one stands beside it.
    settings = broker._properties.read_text()
    for name in ("listeners=", "advertised.listeners="):
        settings = settings.replace(f"\n{name}", f"\n{name}SASL_PLAINTEXT://127.0.0.1:{port},")
    broker._properties.write_text("\n" + settings)
    with broker:
        create_topic(broker.bootstrap, "events")
        yield broker.bootstrap, f"127.0.0.1:{port}"


def test_a_wrong_password_and_a_missing_privilege_stop_with_a_message(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    rows: list[Row] = [("events", b"1", b"a")]
    wrong = pytest.raises(SinkRefused, match=r"(?i)authentication.*sasl")
    with wrong, started(address, Canned(rows), timeout="500ms", kafka=SASL):
        pass
    (finding,) = KafkaSink("kafka1", options(address, kafka=SASL), Canned([])).check()
    assert finding.severity is Severity.ERROR
    assert "Authentication failed" in finding.problem
    assert "not-the-secret" not in str(finding)

    right = SASL | {"sasl.password": "secret"}
    with started(address, Canned(rows), timeout="500ms", kafka=right) as sink:
        with pytest.raises(SinkRefused, match=r'"events".*grant the sink'):
            sink.write(BATCH)
        grant(plain, AclOperation.DESCRIBE)
        (finding,) = KafkaSink("kafka1", options(address, kafka=right), Canned([])).check()
        assert finding.problem == 'no permission to write to topic "events"'
        with pytest.raises(SinkRefused, match=r"authorization failed.*grant the sink's user Write"):
            sink.write(BATCH)
        grant(plain, AclOperation.WRITE)
        sink.write(BATCH)
        assert sink.status().ok


def test_the_check_looks_at_the_topic_of_positions(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    topic = create_topic(plain, "shop.position")
    once = {"exactlyOnce": True, "transactionalId": "shop", "topicFallback": "", "topicPrefix": "t", "createTopics": {}}
    sink = KafkaSink("kafka1", options(address, kafka=SASL | {"sasl.password": "secret"}, **once), Canned([]))
    grant(plain, AclOperation.DESCRIBE, topic)
    missing = [finding.problem for finding in sink.check()]
    assert missing == [f'no permission to {words} topic "{topic}"' for words in ("read from", "write to")]
    grant(plain, AclOperation.READ, topic)
    grant(plain, AclOperation.WRITE, topic)
    assert not list(sink.check())


def section(address: str, **kafka: str) -> dict[str, object]:
    return {
        "type": "kafka",
        "hosts": [address],
        "topics": ["records"],
        "groupID": "readers",
        "timeout": "1s",
        "kafka": SASL | kafka,
    }


def source_of(address: str, **kafka: str) -> KafkaSource:
    return KafkaSource("k", KafkaSourceOptions.model_validate(section(address, **kafka)))


def problems(source: KafkaSource) -> list[str]:
    return [finding.problem for finding in source.check()]


def test_a_source_says_what_its_user_may_not_do(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    create_topic(plain, "records")
    wrong = source_of(address)
    (problem,) = problems(wrong)
    assert "Authentication failed" in problem
    assert "not-the-secret" not in problem
    for call in (wrong.stream_identity, lambda: wrong.start(None)):
        with pytest.raises(SourceRefused, match=r"(?i)authentication.*sasl\.\* properties of the source"):
            call()
    wrong.stop()

    right = {"sasl.password": "secret"}
    (problem,) = problems(source_of(address, **right))
    assert problem == 'topic "records" does not exist, or may not be described'
    with pytest.raises(SourceUnavailable, match=r"records: .*grant the source's user"):
        source_of(address, **right).start(None)
    grant(plain, AclOperation.DESCRIBE, "records")
    assert problems(source_of(address, **right))[0] == 'no permission to read from topic "records"'
    grant(plain, AclOperation.READ, "records")
    (problem,) = problems(source_of(address, **right))
    assert "group readers" in problem
    source = source_of(address, **right)
    source.start(None)
    with pytest.raises(SourceRefused, match=r"^group readers: .*Read on the group"):
        wait_until(lambda: source.read(0.5) is not None)
    source.stop()
    grant(plain, AclOperation.READ, "readers", ResourceType.GROUP)
    assert problems(source_of(address, **right)) == []
    producer = Producer({"bootstrap.servers": plain})
    producer.produce("records", b'{"Table":"t","Action":"insert","Columns":{"id":1}}', b'{"id":1}')
    producer.flush()
    source = source_of(address, **right)
    source.start(None)
    wait_until(lambda: source.read(0.5) is not None)
    source.stop()


def test_looking_back_and_capturing_need_no_group_but_the_sources(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    create_topic(plain, "deleted")
    grant(plain, AclOperation.READ, "deleted")
    grant(plain, AclOperation.READ, "readers", ResourceType.GROUP)
    producer = Producer({"bootstrap.servers": plain})
    producer.produce("deleted", b'{"Table":"t","Action":"insert","Columns":{"id":1}}', b'{"id":1}')
    producer.produce("deleted", None, b'{"id":2}')
    assert producer.flush(30) == 0
    given = {**section(address, **{"sasl.password": "secret"}), "topics": ["deleted"], "startAt": {"deleted": {"0": 1}}}
    source = KafkaSource("k", KafkaSourceOptions.model_validate(given))
    source.start(None)
    wait_until(lambda: source.read(0.5) is not None)
    assert source.stats()["tombstone_deletes"] == 1
    source.stop()
    capture = source.make_capture(CaptureRequest(lambda *_: True, 10, True, lambda _: None))
    capture.start(None)
    wait_until(lambda: capture.read(0.5) is None and capture.is_exhausted)
    capture.stop()


def grant(
    bootstrap: str, operation: AclOperation, name: str = "events", kind: ResourceType = ResourceType.TOPIC
) -> None:
    allowed = (ResourcePatternType.LITERAL, "User:streamer", "*", operation, AclPermissionType.ALLOW)
    acl = AclBinding(kind, name, *allowed)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([acl])[acl].result()
