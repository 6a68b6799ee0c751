"""Brokers that do not know who connects, do not let that user do what it wants, or are not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
from psql_streamer.embedded.ports import free_ports
from psql_streamer.errors import SinkRefused, SinkUnavailable, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, Severity, Transaction
from psql_streamer.model import Relation, ReplicaIdentity
from sinks.kafka import transactional_id_check
from sinks.kafka.sink import KafkaSink
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource
from tests.certificates import Certificate
from tests.columns import postgres_column, postgres_table
from tests.event_topics import read_rows
from tests.kafka_reader import consume
from tests.kafka_sinks import BATCH, Canned, Row, create_topic, options, started, wait_until, write_until_it_works

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


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of one broker. plain: for its administrator. sasl: for user streamer with the password secret. tls: for whoever
    trusts the certificate.
    """

    plain: str
    sasl: str
    tls: str
    certificate: Path


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """Of a broker with three listeners."""
    ours = Certificate(tmp_path_factory.mktemp("broker"), "broker")
    # Kafka wants the key and the certificate in one file.
    both = ours.key.with_name("both.pem")
    both.write_text(ours.key.read_text() + ours.certificate.read_text())
    protocols = ["CONTROLLER:PLAINTEXT", *(f"{one}:{one}" for one in ("PLAINTEXT", "SASL_PLAINTEXT", "SSL"))]
    broker = EmbeddedKafka(
        properties={
            "listener.security.protocol.map": ",".join(protocols),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(both),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
    )
    # The broker picks its own plain listener; these stand beside it.
    sasl, tls = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = broker._properties.read_text()
    for name in ("listeners=", "advertised.listeners="):
        settings = settings.replace(f"\n{name}", f"\n{name}SASL_PLAINTEXT://{sasl},SSL://{tls},")
    broker._properties.write_text("\n" + settings)
    with broker:
        create_topic(broker.bootstrap, "events")
        yield Addresses(broker.bootstrap, sasl, tls, ours.certificate)


@pytest.fixture
def sasl_broker(addresses: Addresses) -> tuple[str, str]:
    """The addresses for the administrator and for user streamer."""
    return addresses.plain, addresses.sasl


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
        # The client that took over may have asked for its producer's number before, and is refused for good.
        write_until_it_works(sink, passing=SinkRefused)
        assert sink.status().ok


def test_what_a_sink_with_exactly_once_may_not_do_is_named_at_the_start(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    create_topic(plain, "once")
    create_topic(plain, "cdc.position")
    for operation in (AclOperation.DESCRIBE, AclOperation.WRITE):
        grant(plain, operation, "once")
    rows: list[Row] = [("once", b"1", b"a")]
    given = {"kafka": SASL | {"sasl.password": "secret"}, "exactlyOnce": True, "transactionalId": "cdc"}

    def refusal() -> str:
        with pytest.raises(SinkRefused) as refused, started(address, Canned(rows), topicFallback="once", **given):
            pass
        return str(refused.value)

    def problems() -> list[str]:
        sink = KafkaSink("kafka1", options(address, topicFallback="once", **given), Canned([]))
        return [finding.problem for finding in sink.check()]

    assert '"cdc.position"' in refusal()
    grant(plain, AclOperation.DESCRIBE, "cdc.position")
    access = [f'no permission to {what} topic "cdc.position"' for what in ("write to", "read from")]
    assert problems() == [*access, 'no permission to write with transactionalId "cdc"']
    assert "--transactional-id" in refusal()
    for operation in (AclOperation.DESCRIBE, AclOperation.WRITE):
        grant(plain, operation, "cdc", ResourceType.TRANSACTIONAL_ID)
    assert '"cdc.position"' in refusal()
    grant(plain, AclOperation.WRITE, "cdc.position")
    assert problems() == access[1:]
    with started(address, Canned(rows), topicFallback="once", **given) as sink:
        sink.write_transaction(Transaction([BATCH], {"db1": b"{}"}))
    assert re.search(r'"cdc\.position" cannot be read: .*: grant the sink\'s user Read and Write on it', refusal())
    grant(plain, AclOperation.READ, "cdc.position")
    with started(address, Canned(rows), topicFallback="once", **given) as sink:
        assert problems() == []
        sink.write_transaction(Transaction([BATCH], {"db1": b"{}"}))
    with started(address, Canned(rows), topicFallback="once", **given) as sink:
        assert sink.find_note("db1") == b"{}", "no group is joined, and none has to be allowed"
    assert [record.value for record in consume(plain, ["once"], isolation_level="read_committed")] == [b"a", b"a"]


def test_the_topic_of_a_transaction_that_may_not_be_written_to_is_the_one_that_is_named(
    sasl_broker: tuple[str, str],
) -> None:
    """Brokers refuse the transaction, and with it the records of all topics."""
    plain, address = sasl_broker
    topics = [f"among-{number}" for number in range(5)]
    for topic in (*topics, "among.position"):
        create_topic(plain, topic)
        for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE):
            if (topic, operation) != (topics[3], AclOperation.WRITE):
                grant(plain, operation, topic)
    for operation in (AclOperation.DESCRIBE, AclOperation.WRITE):
        grant(plain, operation, "among", ResourceType.TRANSACTIONAL_ID)
    rows: list[Row] = [(topic, b"1", b"a") for topic in topics]
    given = {"kafka": SASL | {"sasl.password": "secret"}, "exactlyOnce": True, "transactionalId": "among"}
    told = r'transaction failed, with topic "among-3": .*Topic authorization failed.*grant the sink'
    with started(address, Canned(rows), **given) as sink, pytest.raises(SinkRefused, match=told):
        sink.write_transaction(Transaction([BATCH], {"db1": b"{}"}))


def test_check_names_each_right_that_lacks_on_the_topics_of_tables(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    for topic in ("shop.public.hidden", "shop.public.shown", "letters-hidden"):
        create_topic(plain, topic)
    grant(plain, AclOperation.DESCRIBE, "shop.public.shown")
    for topic in ("shop.public.absent", "shop.public.to_be_made"):
        grant(plain, AclOperation.WRITE, topic)
    grant(plain, AclOperation.CREATE, "shop.public.to_be_made")
    tables = [_table(name) for name in ("hidden", "shown", "absent", "to_be_made")]

    def errors(**section: object) -> dict[str, str]:
        given = {"topicFallback": "", "topicPrefix": "shop", "kafka": SASL | {"sasl.password": "secret"}, **section}
        sink = KafkaSink("kafka1", options(address, **given), Canned([]))
        found = [*sink.check(), *sink.review({"db1": tables})]
        return {each.problem: each.remedy for each in found if each.severity is Severity.ERROR}

    hidden = 'topic "shop.public.hidden": Broker: Topic authorization failed'
    shown = 'no permission to write to topic "shop.public.shown"'
    absent = 'topic "shop.public.absent" does not exist and the user may not create it'
    sections: list[dict[str, object]] = [{}, {"createTopics": {}}]
    for section in sections:
        found = errors(**section)
        assert found.keys() == {hidden, shown, absent}
        assert found[absent].endswith("--operation Create --topic shop.public.absent")
        assert found[shown].endswith("--operation Write --topic shop.public.shown")
    letters = 'topic "letters-hidden": Broker: Topic authorization failed'
    assert errors(deadLetterTopic="letters-hidden").keys() == {letters, hidden, shown, absent}
    assert not AdminClient({"bootstrap.servers": plain}).list_topics(timeout=10).topics.keys() & {
        "shop.public.absent",
        "shop.public.to_be_made",
    }


def _table(name: str) -> Relation:
    return postgres_table(1, "public", name, ReplicaIdentity.DEFAULT, (postgres_column("id", 23, key=True),))


def test_check_takes_no_transactional_id_where_brokers_would_give_it(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_id_check, "_LONGEST_TIMEOUT_MS", 900_000)  # what brokers allow
    given = {"exactlyOnce": True, "transactionalId": "kept", "topicFallback": "kept"}
    create_topic(addresses.plain, "kept")
    with started(addresses.plain, Canned([("kept", b"1", b"a")]), **given) as sink:
        sink.write_transaction(Transaction([BATCH], {"db1": b"{}"}))
        (finding,) = sink.check()
        assert finding.severity is Severity.WARNING
        assert "transaction.max.timeout.ms" in finding.problem
        sink.write_transaction(Transaction([BATCH], {"db1": b"{}"}))


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
    for call in (wrong.read_stream_identity, lambda: wrong.start(None)):
        with pytest.raises(SourceRefused, match=r"(?i)authentication.*sasl\.\* properties of the source"):
            call()
    wrong.stop()

    right = {"sasl.password": "secret"}
    no_group = 'group "readers": Broker: Group authorization failed'
    no_topic = "topic records cannot be described: Broker: Topic authorization failed"
    assert problems(source_of(address, **right)) == [no_topic, no_group]
    refused = source_of(address, **right)
    with pytest.raises(SourceRefused, match=r"topic records .*: grant the source's user Read and Describe"):
        refused.start(None)
    refused.stop()
    grant(plain, AclOperation.DESCRIBE, "records")
    assert problems(source_of(address, **right))[0] == 'no permission to read from topic "records"'
    grant(plain, AclOperation.READ, "records")
    assert problems(source_of(address, **right)) == [no_group]
    source = source_of(address, **right)
    source.start(None)
    with pytest.raises(SourceRefused, match=r"^group readers: .*Read on the group"):
        wait_until(lambda: source.read(0.5) is not None)
    source.stop()
    grant(plain, AclOperation.DESCRIBE, "readers", ResourceType.GROUP)
    assert problems(source_of(address, **right)) == ['no permission to read in group "readers"']
    grant(plain, AclOperation.READ, "readers", ResourceType.GROUP)
    assert problems(source_of(address, **right)) == []
    assert not members(plain, "readers"), "the group is not joined"
    producer = Producer({"bootstrap.servers": plain})
    producer.produce("records", b'{"Table":"t","Action":"insert","Columns":{"id":1}}', b'{"id":1}')
    producer.flush()
    source = source_of(address, **right)
    source.start(None)
    wait_until(lambda: source.read(0.5) is not None)
    source.stop()


def members(bootstrap: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.describe_consumer_groups([group])[group].result(30).members)


def test_what_a_source_may_not_do_with_its_dead_letters_is_named(sasl_broker: tuple[str, str]) -> None:
    plain, address = sasl_broker
    create_topic(plain, "good")
    create_topic(plain, "letters")
    grant(plain, AclOperation.READ, "good")
    grant(plain, AclOperation.READ, "good-readers", ResourceType.GROUP)
    given = {**section(address, **{"sasl.password": "secret"}), "topics": ["good"], "groupID": "good-readers"}

    def found() -> list[str]:
        options = KafkaSourceOptions.model_validate({**given, "deadLetterTopic": "letters"})
        return list(map(str, KafkaSource("k", options).check()))

    (hidden,) = found()
    assert hidden.startswith('error: deadLetterTopic "letters" cannot be described: Broker: Topic authorization failed')
    assert "Write" in hidden
    grant(plain, AclOperation.DESCRIBE, "letters")
    (finding,) = found()
    assert finding.startswith('error: no permission to write to topic "letters": kafka-acls.sh ')
    assert "--operation Write --topic letters" in finding
    grant(plain, AclOperation.WRITE, "letters")
    assert found() == []


def test_a_sink_a_source_and_check_speak_tls_with_a_broker_whose_certificate_they_trust(addresses: Addresses) -> None:
    trusting = {"security.protocol": "ssl", "ssl.ca.location": str(addresses.certificate)}
    create_topic(addresses.plain, "encrypted")
    event = b'{"Table":"t","Action":"insert","Columns":{"id":1}}'
    sink = KafkaSink("kafka1", options(addresses.tls, kafka=trusting, topicFallback="encrypted"), Canned([]))
    assert list(sink.check()) == []
    with started(addresses.tls, Canned([("encrypted", b'{"id":1}', event)]), kafka=trusting) as running:
        running.write(BATCH)
    source = tls_source(addresses, trusting)
    assert problems(source) == []
    source.start(None)
    try:
        assert sum(map(len, read_rows(source, 1))) == 1
    finally:
        source.stop()


def test_a_certificate_that_nobody_trusts_is_named(addresses: Addresses, tmp_path: Path) -> None:
    other = {"security.protocol": "ssl", "ssl.ca.location": str(Certificate(tmp_path, "other").certificate)}
    sink = KafkaSink("kafka1", options(addresses.tls, kafka=other, timeout="1s"), Canned([]))
    source = tls_source(addresses, other)
    told = "certificate verify failed"
    what = rf"{told}.*check ssl\.ca\.location, security\.protocol and the ssl\.\* properties"
    for (finding,) in (sink.check(), source.check()):
        assert re.search(what, str(finding))
    with pytest.raises(SinkUnavailable, match=what), started(addresses.tls, None, kafka=other, timeout="1s"):
        pass
    try:
        with pytest.raises(SourceUnavailable, match=what):
            source.start(None)
        assert re.search(told, source.status().reason)
    finally:
        source.stop()


def tls_source(addresses: Addresses, kafka: dict[str, str]) -> KafkaSource:
    given = {"type": "kafka", "hosts": [addresses.tls], "topics": ["encrypted"], "groupID": "tls", "timeout": "1s"}
    return KafkaSource("k", KafkaSourceOptions.model_validate({**given, "kafka": kafka}))


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
