"""What `check` looks at before a Kafka sink is started. Changes nothing at the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AclOperation,
    AdminClient,
    ClusterMetadata,
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
from sinks.kafka.position_topic import make_position_topic_settings
from sinks.kafka.topic_creation_check import find_uncreatable_topics
from sinks.kafka.topics import describe_topic_creation
from sinks.kafka.transactional_id_check import find_forbidden_id

_DEFAULT_BATCH_BYTES = 1_000_000  # librdkafka's batch.size


def make_administrator(options: KafkaSinkOptions) -> Administrator:
    """A client for questions about the sink's brokers."""
    return Administrator(options.hosts, options.make_admin_properties(), options.timeout, REFUSED)


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
        administrator = make_administrator(options)
        try:
            cluster = administrator.list_topics()
        except KafkaException as error:
            said: KafkaError = error.args[0]
            yield administrator.describe_silence(said, find_remedy(said) or UNREACHABLE[KafkaError._TRANSPORT])
            return
        named = _list_named_topics(options)
        noted = [options.position_topic_name] if options.exactly_once else []
        seen = self._seen = _look(administrator, cluster, options, [*named, *noted])
        yield from limit_findings(self._find_absent(named, seen))
        if seen.is_left_to_others and _has_table_topics(options):
            problem = f"topics are named after tables and {seen.why}"
            remedy = "create them beforehand, or add a section createTopics to the sink's"
            yield Finding(Severity.WARNING, problem, remedy)
        yield from self._find_forbidden([*named, *noted], seen)
        if options.exactly_once:
            yield from _review_position_topic(options, seen)
            yield from find_forbidden_id(options, administrator, cluster)
        there = [topic for topic in named if topic in seen.topics]
        yield from _find_small_limits(self._name, options, administrator.client, there)

    def review_topics(self, topics: Iterable[str]) -> Iterator[Finding]:
        """Which of the topics that tables go to do not exist, if nobody makes them, and which may not be written.
        Nothing before `collect_findings`.
        """
        if self._seen is None:
            return
        others = [topic for topic in topics if topic not in self._seen.named]
        seen = self._seen.look_for(others)
        absent = [topic for topic in others if topic not in seen.topics]
        refused = dict(self._find_uncreatable(absent, seen))
        yield from limit_findings(refused.values())
        left = [topic for topic in absent if topic not in refused] if seen.is_left_to_others else []
        if left:
            what = f"{len(left)} topics of published tables do not exist and {seen.why}: {show_names(left)}"
            yield Finding(seen.severity, what, describe_topic_creation("NAME", self._options.hosts[0]))
        yield from self._find_forbidden(others, seen)

    def _find_absent(self, topics: Sequence[str], seen: _Seen) -> Iterator[Finding]:
        absent = [topic for topic in topics if topic not in seen.topics]
        refused = dict(self._find_uncreatable(absent, seen))
        for topic in absent:
            if topic in refused:
                yield refused[topic]
            elif seen.is_left_to_others:
                problem = f'topic "{topic}" does not exist and {seen.why}'
                yield Finding(seen.severity, problem, describe_topic_creation(topic, self._options.hosts[0]))

    def _find_uncreatable(self, topics: Sequence[str], seen: _Seen) -> Iterator[tuple[str, Finding]]:
        create = self._options.create_topics
        if create is None and seen.automatic is False:
            return  # nobody makes them, whoever may
        yield from find_uncreatable_topics(seen.administrator, topics, create, self._options.hosts[0])

    def _find_forbidden(self, topics: Sequence[str], seen: _Seen) -> Iterator[Finding]:
        there = [topic for topic in topics if topic in seen.topics]
        yield from limit_findings(seen.administrator.find_forbidden(there, AclOperation.WRITE, find_remedy))


@dataclass(frozen=True, slots=True)
class _Seen:
    """named: topics that were looked for. topics: that exist. hidden: of these, the ones that may not be described.
    automatic: whether brokers make topics; None if that may not be seen. creates: whether the sink does.
    """

    administrator: Administrator
    named: frozenset[str]
    topics: frozenset[str]
    hidden: frozenset[str]
    automatic: bool | None
    creates: bool

    @property
    def is_left_to_others(self) -> bool:
        """Whether neither the sink is known to make topics that do not exist, nor the brokers."""
        return not self.creates and not self.automatic

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.automatic is None else Severity.ERROR

    @property
    def why(self) -> str:
        return "whether brokers create topics cannot be seen" if self.automatic is None else "brokers create no topics"

    def look_for(self, topics: Sequence[str]) -> _Seen:
        """The same with other topics: one that is hidden may exist."""
        hidden = self.administrator.find_hidden([topic for topic in topics if topic not in self.topics])
        return replace(self, topics=self.topics | hidden, hidden=self.hidden | hidden)


def _look(
    administrator: Administrator, cluster: ClusterMetadata, options: KafkaSinkOptions, named: Sequence[str]
) -> _Seen:
    creates = options.create_topics is not None
    setting = None if creates else administrator.find_broker_setting(cluster, "auto.create.topics.enable")
    automatic = None if setting is None else setting == "true"
    none: frozenset[str] = frozenset()
    seen = _Seen(administrator, frozenset(named), frozenset(cluster.topics), none, automatic, creates)
    return seen.look_for(named)


def _review_position_topic(options: KafkaSinkOptions, seen: _Seen) -> Iterator[Finding]:
    """Whether the sink may read it, or make it if it is not there; and whether brokers delete what is in it."""
    topic = options.position_topic_name
    if topic not in seen.topics:
        create = make_position_topic_settings(options)
        found = find_uncreatable_topics(seen.administrator, [topic], create, options.hosts[0])
        yield from (finding for _, finding in found)
    elif topic not in seen.hidden:
        yield from seen.administrator.find_forbidden([topic], AclOperation.READ, find_remedy)
        policy = seen.administrator.find_topic_setting(topic, "cleanup.policy")
        if policy is not None and "delete" in policy:
            what = f'topic "{topic}" has cleanup.policy "{policy}": a crash after its retention.ms may repeat events'
            command = f"kafka-configs.sh --bootstrap-server {options.hosts[0]} --alter --topic {topic}"
            yield Finding(Severity.WARNING, what, f"{command} --add-config cleanup.policy=compact")


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
