"""What `check` looks at before a Kafka sink is started. Changes nothing at the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from psql_streamer.events.routing import SourceTopic
from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.administrator import Administrator
from sinks.kafka.connection_errors import UNREACHABLE
from sinks.kafka.errors import REFUSED, find_remedy
from sinks.kafka.findings import limit_findings, show_names
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.topics import describe_topic_creation
from sinks.kafka.transactional_id_check import find_forbidden_id

_DEFAULT_BATCH_BYTES = 1_000_000  # librdkafka's batch.size


class KafkaCheck:
    """One look at the brokers. name: of the sink."""

    def __init__(self, name: str, options: KafkaSinkOptions) -> None:
        self._name = name
        self._options = options
        self._seen: _Seen | None = None

    def collect_findings(self) -> Iterator[Finding]:
        """Findings about the brokers, and about every topic that the section names outright."""
        self._seen = None
        options = self._options
        administrator = Administrator(options.hosts, options.make_admin_properties(), options.timeout, REFUSED)
        try:
            cluster = administrator.list_topics()
        except KafkaException as error:
            said: KafkaError = error.args[0]
            yield administrator.describe_silence(said, find_remedy(said) or UNREACHABLE[KafkaError._TRANSPORT])
            return
        named = _list_named_topics(options)
        missing = [topic for topic in named if topic not in cluster.topics]
        if options.create_topics is None and (missing or _has_table_topics(options)):
            automatic = administrator.find_broker_setting(cluster, "auto.create.topics.enable")
            seen = None if automatic is None else automatic == "true"
            self._seen = _Seen(frozenset({*cluster.topics, *named}), seen)
            yield from self._report_missing_topics(missing, self._seen)
        existing = [topic for topic in named if topic in cluster.topics]
        noted = [options.position_topic_name] if options.exactly_once else []
        noted = [topic for topic in noted if topic in cluster.topics]
        yield from administrator.find_forbidden(existing + noted, AclOperation.WRITE, find_remedy)
        yield from administrator.find_forbidden(noted, AclOperation.READ, find_remedy)
        if options.exactly_once:
            yield from find_forbidden_id(options, administrator, cluster)
        yield from _find_small_limits(self._name, options, administrator.client, existing)

    def find_absent_topics(self, topics: Iterable[str]) -> Iterator[Finding]:
        """Which of the topics that tables go to do not exist, if nobody makes them. Nothing before `findings`."""
        if self._seen is None or self._seen.automatic:
            return
        absent = [topic for topic in topics if topic not in self._seen.topics]
        if absent:
            what = f"{len(absent)} topics of published tables do not exist and {self._seen.why}: {show_names(absent)}"
            yield Finding(self._seen.severity, what, describe_topic_creation("NAME", self._options.hosts[0]))

    def _report_missing_topics(self, missing: list[str], seen: _Seen) -> Iterator[Finding]:
        if seen.automatic:
            return
        host = self._options.hosts[0]
        yield from limit_findings(
            Finding(
                seen.severity, f'topic "{topic}" does not exist and {seen.why}', describe_topic_creation(topic, host)
            )
            for topic in missing
        )
        if _has_table_topics(self._options):
            problem = f"topics are named after tables and {seen.why}"
            remedy = "create them beforehand, or add a section createTopics to the sink's"
            yield Finding(Severity.WARNING, problem, remedy)


@dataclass(frozen=True, slots=True)
class _Seen:
    """topics: that exist, or were told of. automatic: whether brokers make topics; None if that may not be seen."""

    topics: frozenset[str]
    automatic: bool | None

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.automatic is None else Severity.ERROR

    @property
    def why(self) -> str:
        return "whether brokers create topics cannot be seen" if self.automatic is None else "brokers create no topics"


def _list_named_topics(options: KafkaSinkOptions) -> list[str]:
    """Topics that are known without the tables, those of each source included."""
    given = (
        *options.list_mapped_topics(),
        options.topic_fallback,
        options.message_topic,
        options.transactions_to,
        options.schema_topic,
        options.dead_letter_topic,
    )
    known = [SourceTopic("topic", topic) for topic in given if topic and _is_of_source(topic)]
    return list(dict.fromkeys(topic.render(source) for topic in known for source in options.sources))


def _is_of_source(topic: str) -> bool:
    """Whether a topic has no placeholder but the source's name."""
    return "{" not in topic.replace("{source}", "")


def _has_table_topics(options: KafkaSinkOptions) -> bool:
    return bool(options.topic_prefix) or not all(map(_is_of_source, options.list_mapped_topics()))


def _find_small_limits(
    name: str, options: KafkaSinkOptions, admin: AdminClient, topics: list[str]
) -> Iterator[Finding]:
    """A request larger than a topic takes is rejected whole, and then written record by record: slow."""
    if not topics:
        return
    batch_bytes = int(options.kafka.get("batch.size", _DEFAULT_BATCH_BYTES))
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for resource, future in admin.describe_configs(resources, request_timeout=options.timeout).items():
        try:
            limit = int(future.result()["max.message.bytes"].value)
        except (KafkaException, KeyError):
            continue  # reading topic settings is a privilege of its own, and this is advice
        if limit < batch_bytes:
            problem = f'topic "{resource.name}" takes {limit} bytes a request, less than batch.size'
            yield Finding(Severity.WARNING, problem, f'set "batch.size" = {limit} or less under [sink.{name}.kafka]')
