"""A configuration that can be used becomes frozen values; one that cannot tells everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.config import HttpAddress, LogFormat, LogLevel, load
from psql_streamer.errors import ConfigError
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from sinks.kafka.sink import KafkaSink
from sources.postgres.source import PostgresSource
from tests.config_files import MINIMAL, PARTS, problems_of, with_line, written

DATA = Path(__file__).parents[1] / "data"


def test_a_minimal_file_gives_the_parts_and_the_defaults(tmp_path: Path) -> None:
    config = load(written(tmp_path, MINIMAL), {})
    assert config.http == HttpAddress("127.0.0.1", 8080)
    assert (config.ticker_interval, config.drain_timeout) == (0, 25)
    assert (config.log.level, config.log.format) == (LogLevel.INFO, LogFormat.TEXT)
    assert list(config.sources) == ["db1"]
    assert list(config.sinks) == ["kafka1"]
    assert config.handlers == {}
    assert config.list_handler_names("kafka1") == ()
    assert config.warnings == ()
    assert isinstance(config.sources["db1"].build(), PostgresSource)
    assert isinstance(config.sinks["kafka1"].build(), KafkaSink)
    assert config.sources["db1"].build().name == "db1"


def test_a_file_of_the_go_service_loads_unchanged() -> None:
    config = load(DATA / "go-psql-streamer.toml", {})
    assert config.lmdb == Path("/var/lib/psql-streamer/psql-streamer.db")
    assert config.ticker_interval == 60
    assert list(config.sources) == ["orders", "billing"]
    assert list(config.sinks) == ["kafka", "log", "discard"]
    orders = config.sources["orders"].options
    assert orders.debug
    assert getattr(orders, "wal_retain") == 16 << 20  # noqa: B009  # the contract's type does not have it
    assert config.sinks["kafka"].options.sources == ("orders", "billing")
    assert config.handlers == {}


def test_the_spark_handler_is_the_default_of_a_kafka_sink(tmp_path: Path) -> None:
    config = load(written(tmp_path, MINIMAL.replace('handlers = ["passthrough"]\n', "")), {})
    assert config.list_handler_names("kafka1") == ("spark",)
    assert list(config.handlers) == ["spark"]


def test_snake_case_is_accepted(tmp_path: Path) -> None:
    text = MINIMAL.replace("replicationSlot", "replication_slot").replace("topicPrefix", "topic_prefix")
    config = load(written(tmp_path, text), {})
    assert config.sources["db1"].options.model_dump()["replication_slot"] == "slot1"


def test_both_spellings_of_a_key_are_one_too_many(tmp_path: Path) -> None:
    text = with_line(MINIMAL, "[source.db1]", 'replication_slot = "other"')
    assert any("is another name of" in problem for problem in problems_of(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", "", 8080),
        ("localhost:0", "localhost", 0),
        ("[::1]:80", "::1", 80),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_http_is_written_as_go_writes_addresses(tmp_path: Path, text: str, host: str, port: int) -> None:
    config = load(written(tmp_path, MINIMAL.replace("127.0.0.1:8080", text)), {})
    assert config.http == HttpAddress(host, port)
    assert str(config.http) == text


@pytest.mark.parametrize(
    "text",
    [
        "8080",
        "localhost",
        "::1:80",
        "host:http",
        ":65536",
        "",
        ":-1",
        f"{'h' * 64}:80",
        "a..b:80",
        " a:80",
        "a b:80",
        "*:80",
    ],
)
def test_an_http_address_without_a_port_is_refused(tmp_path: Path, text: str) -> None:
    [problem] = problems_of(tmp_path, MINIMAL.replace("127.0.0.1:8080", text))
    assert f': http: "{text}" is not an address' in problem


def test_an_lsn_is_written_as_postgresql_or_as_go_does(tmp_path: Path) -> None:
    for written_as in ('"16/B374D848"', str(int(Lsn.parse("16/B374D848")))):
        config = load(written(tmp_path, with_line(MINIMAL, "[source.db1]", f"walPositionOverride = {written_as}")), {})
        assert config.sources["db1"].options.model_dump()["wal_position_override"] == Lsn.parse("16/B374D848")


def test_boltdb_and_lmdb_together_are_one_too_many(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, f'boltdb = "/x"\n{MINIMAL}')
    assert problem.endswith("boltdb: boltdb is another name of lmdb: give one of the two")


def test_a_part_of_ones_own_is_named_by_its_class(tmp_path: Path) -> None:
    text = f"""{MINIMAL}
        [sink.mine]
        type = "{PARTS}:MemorySink"
        sources = ["db1"]
        greeting = "hello"
        """
    sink = load(written(tmp_path, text), {}).sinks["mine"].build()
    assert sink.options.model_dump()["greeting"] == "hello"


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    text = """
        http = "8080"
        tickerInterval = "-1s"
        lmbd = "/x"
        [source.db1]
        type = "postgres"
        dsn = "host=a"
        publication = "p"
        replicationSlot = "s"
        batchSize = -5
        timeout = "5 parsecs"
        [source.db2]
        type = "postgras"
        [source.db3]
        type = "kafka"
        hosts = ["k:9092"]
        topics = ["t"]
        kafka = { "enable.auto.commit" = true }
        groupID = "g"
        [sink.kafka1]
        type = "kafka"
        sources = ["db1", "db9", "db1"]
        hosts = ["k:9092"]
        handlers = ["spork"]
        batchSize = 1.5
        async = "maybe"
        topicprefix = "x"
        """
    name = tmp_path / "psql-streamer.toml"
    problems = "\n".join(problems_of(tmp_path, text))
    for problem in (
        f'{name}: http: "8080" is not an address such as "127.0.0.1:8080", ":8080" or "[::1]:8080"',
        f'{name}: tickerInterval: "-1s" is not allowed: must be at least 0',
        f"{name}: unknown key lmbd; did you mean lmdb?",
        f"{name}: lmdb: is required",
        f"{name}: source.db1.batchSize: -5 is not allowed: must be greater than 0",
        f'{name}: source.db1.timeout: "5 parsecs" is not a duration such as "100ms", "1s" or "5m"',
        f'{name}: source.db2.type: "postgras" is not a known source; did you mean postgres?',
        f'{name}: source.db3: kafka."enable.auto.commit" cannot be set: offsets are committed when every sink has',
        f'{name}: sink.kafka1.sources: there is no source "db9"; did you mean db3?',
        f'{name}: sink.kafka1.sources: "db1" is named twice',
        f'{name}: sink.kafka1.handlers: "spork" is not a known handler; did you mean spark?',
        f"{name}: sink.kafka1.batchSize: 1.5 is not allowed: must be a whole number",
        f'{name}: sink.kafka1.async: "maybe" is not allowed: must be true or false',
        f"{name}: sink.kafka1: unknown key topicprefix; did you mean topicPrefix?",
    ):
        assert problem in problems
    assert "groupID" not in problems


def problem_cases() -> dict[str, tuple[str, str]]:
    """Name -> a file, and what is said about it."""
    kafka1 = "[sink.kafka1]"
    without_source = MINIMAL.partition("[source.db1]")[0] + kafka1 + MINIMAL.partition(kafka1)[2]
    return {
        "no source": (without_source, "there is no source: add a section [source.NAME]"),
        "no sink": (MINIMAL.partition(kafka1)[0], "there is no sink: add a section [sink.NAME]"),
        "a lookup of no source": (
            MINIMAL.replace('"passthrough"', '"spark"')
            + '[spark.lookups.customers]\nkind = "changelog"\nsource = "bd1"\ntable = "public.customers"\n',
            'spark.lookups.customers.source: there is no source "bd1"; did you mean db1?',
        ),
        "source is a value": (
            f"source = 5\n{without_source}",
            "source: must be sections: [source.NAME]",
        ),
        "a section is a value": (
            with_line(MINIMAL, "[source.db1]", "", before="[source]\nx = 1"),
            "source.x: must be a section",
        ),
        "no type": (
            MINIMAL.replace('type = "postgres"\n', ""),
            "source.db1.type: is required: one of kafka, mysql, postgres, sql",
        ),
        "a type that is a number": (MINIMAL.replace('"postgres"', "5"), "source.db1.type: must be a string: one of"),
        "a class that is not there": (
            MINIMAL.replace('"postgres"', '"sources.postgres.source:Nobody"'),
            "is not a source: it must be",
        ),
        "a module that is not there": (
            MINIMAL.replace('"postgres"', '"nobody.here:Source"'),
            "cannot be imported: No module",
        ),
        "a sink as a source": (
            MINIMAL.replace('"postgres"', '"sinks.kafka.sink:KafkaSink"'),
            "is not a source: it must be",
        ),
        "no sources": (MINIMAL.replace('sources = ["db1"]\n', ""), "sink.kafka1.sources: is required"),
        "empty sources": (MINIMAL.replace('["db1"]', "[]"), "sink.kafka1.sources: must not be empty"),
        "empty handlers": (MINIMAL.replace('["passthrough"]', "[]"), "sink.kafka1.handlers: is empty"),
        "handlers twice": (MINIMAL.replace('["passthrough"]', '["spark", "spark"]'), "sink.kafka1.handlers: "),
        "a number for a list": (
            MINIMAL.replace('["db1"]', "5"),
            "sink.kafka1.sources: 5 is not allowed: must be a list",
        ),
        "true for a number": (with_line(MINIMAL, "[source.db1]", "batchSize = true"), "batchSize: true is not allowed"),
        "unknown section": (f"{MINIMAL}\n[sinks.x]\ny = 1", "unknown key sinks; did you mean sink?"),
        "unknown key far from all": (
            with_line(MINIMAL, "[log]", "zzz = 1"),
            "log: unknown key zzz; known: level, format",
        ),
        "unknown level": (
            with_line(MINIMAL, "[log]", 'level = "loud"'),
            'log.level: "loud" is not allowed: must be one of',
        ),
        "a topic with a NUL": (
            MINIMAL.replace('"shop"\nrep', '"sh\\u0000op"\nrep'),
            "source.db1.publication: holds a NUL character",
        ),
        "a duration that libraries cannot count": (
            with_line(MINIMAL, kafka1, 'timeout = "10000000h"'),
            'sink.kafka1.timeout: "10000000h" is longer than 596h',
        ),
        "a timeout that librdkafka does not take": (
            with_line(MINIMAL, kafka1, 'timeout = "6m"'),
            'sink.kafka1.timeout: "6m" is longer than 5m, the longest that librdkafka takes',
        ),
        "a slot with other letters": (
            MINIMAL.replace('replicationSlot = "', 'replicationSlot = "My-'),
            "is no name of a replication slot: it may have the letters a to z in lower case, digits and _ alone",
        ),
        "a function without a module": (
            f'{MINIMAL}\n[spark.tables.orders]\nfunction = "price"\n',
            'spark.tables.orders.function: "price" is no function: write module:function',
        ),
        "blocks larger than their offsets can count": (
            with_line(MINIMAL, "[source.db1]", 'batchBytes = "2GB"'),
            'source.db1.batchBytes: "2GB" is not allowed: must be at most 1073741824',
        ),
        "lists in lists": (
            f"x = {'[' * 3000}{']' * 3000}\n{MINIMAL}",
            "a value is nested more than 50 lists or tables deep",
        ),
        "tables in tables": (
            f"{MINIMAL}\n[x{'.y' * 100}]\nz = 1",
            "a value is nested more than 50 lists or tables deep",
        ),
        "no topic": (MINIMAL.replace('topicPrefix = "shop"\n', ""), "sink.kafka1: no event has a topic"),
        "a fallback that is mapped": (
            with_line(MINIMAL, kafka1, 'topicFallback = "t"\ntableTopicMapping = {orders = "t"}'),
            "is the topicFallback already",
        ),
        "a topic of several without its name": (
            with_line(MINIMAL, kafka1, 'tableTopicMapping = {orders = ["t", {key = ["id"]}]}'),
            "sink.kafka1.tableTopicMapping.orders[1].topic: is required",
        ),
        "an unknown key of one topic": (
            with_line(MINIMAL, kafka1, 'tableTopicMapping = {orders = [{topic = "t", kee = ["id"]}]}'),
            "sink.kafka1.tableTopicMapping.orders[0]: unknown key kee; did you mean key?",
        ),
        "a route that is no list, with an unknown key": (
            with_line(MINIMAL, kafka1, 'tableTopicMapping = {orders = {topic = "t", kee = ["id"]}}'),
            "sink.kafka1.tableTopicMapping.orders: unknown key kee; did you mean key?",
        ),
        "a topic's key that is no list": (
            with_line(MINIMAL, kafka1, 'tableTopicMapping = {orders = [{topic = "t", key = "id"}]}'),
            'sink.kafka1.tableTopicMapping.orders[0].key: "id" is not allowed: must be a list',
        ),
        "no topic for a table": (
            with_line(MINIMAL, kafka1, "tableTopicMapping = {orders = []}"),
            "sink.kafka1.tableTopicMapping.orders: is empty",
        ),
        "an unknown rule for unchanged values": (
            with_line(MINIMAL, kafka1, 'unchanged = "keep"'),
            'sink.kafka1.unchanged: "keep" is not allowed: must be one of "fill", "omit" or "marker"',
        ),
        "an unknown rule for a column's unchanged values": (
            with_line(MINIMAL, kafka1, 'unchanged = {body = "keep"}'),
            'sink.kafka1.unchanged.body: "keep" is not allowed: must be one of "fill", "omit" or "marker"',
        ),
        "a bad librdkafka option": (
            f'{MINIMAL}\n[sink.kafka1.kafka]\n"linger.mss" = 5',
            "linger.mss",
        ),
        "rows put aside and no place for them": (
            MINIMAL.replace('["passthrough"]', '["spark"]')
            + "\n[spark]\nonError = 'dead-letter'\n[spark.tables.orders]\ncoerce = {id = 'int'}",
            'sink.kafka1.deadLetterTopic: is required, because a rule of [spark] has onError = "dead-letter"',
        ),
        "another way with rows that fail": (
            f"{MINIMAL}\n[spark.tables.orders]\nonError = 'skip'",
            'spark.tables.orders.onError: "skip" is not allowed: must be one of "stop", "dead-letter" or "null"',
        ),
        "unused spark section": (
            f"{MINIMAL}\n[spark]\nmasster = 'x'",
            "spark: unknown key masster; did you mean master?",
        ),
        "spark is a value": (f"spark = 5\n{MINIMAL}", "spark: must be a section: [spark]"),
        "a spark setting of another name": (
            f"{MINIMAL}\n[spark.conf]\n'driver.memory' = '1g'",
            '"driver.memory" is not a Spark setting',
        ),
        "transactions of a source that knows none": (
            (
                MINIMAL.partition("[source.db1]")[0]
                + '[source.db1]\ntype = "sql"\nurl = "sqlite:////shop.db"\ntables = ["orders"]\n[sink.kafka1]'
                + MINIMAL.partition("[sink.kafka1]")[2]
                + 'format = "debezium"\ndebeziumTransactions = true\ntransactionTopic = "tx"\n'
            ),
            'tells of transactions (debeziumTransactions), and its source "db1" knows nothing of them: leave that out',
        ),
    }


@pytest.mark.parametrize("name", problem_cases())
def test_one_problem_gives_one_clear_line(tmp_path: Path, name: str) -> None:
    text, expected = problem_cases()[name]
    problems = problems_of(tmp_path, text)
    assert any(expected in problem for problem in problems), problems
    assert len(problems) == 1, problems


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("sink.kafka1.kafka", "sasl.username = 'x'", 'sink.kafka1.kafka: NAME "sasl.username"'),
        ("sink.kafka1.createTopics", "config = {cleanup.policy = 'x'}", 'createTopics.config: NAME "cleanup.policy"'),
        ("sink.kafka1.key", "public.orders = ['id']", 'sink.kafka1.key: NAME "public.orders"'),
        ("sink.kafka1.unchanged", "docs.body = 'marker'", 'sink.kafka1.unchanged: NAME "docs.body"'),
        ("source.db1.snapshot.where", "public.orders = 'id > 1'", 'source.db1.snapshot.where: NAME "public.orders"'),
        ("spark.conf", "spark.driver.memory = '1g'", 'spark.conf: NAME "spark.driver.memory"'),
        ("spark.tables.public.orders", "drop = ['a']", 'public: unknown key orders; NAME "public.orders"'),
        ("sink.kafka1.tableTopicMapping", "public.orders = 'x'", 'public: unknown key orders; NAME "public.orders"'),
        ("source.shop.eu", "type = 'postgres'", "source.shop.type: is required: one of kafka, mysql, postgres, sql; "),
    ],
)
def test_a_name_with_dots_that_lacks_its_quotes_is_recognised(
    tmp_path: Path, section: str, line: str, expected: str
) -> None:
    problems = problems_of(tmp_path, f"{MINIMAL}\n[{section}]\n{line}\n")
    wanted = expected.replace("NAME", "a name with dots stands in quotes:")
    assert any(wanted in problem for problem in problems), problems


def test_a_source_whose_name_has_dots_is_told_to_have_quotes(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, MINIMAL.replace("[source.db1]", "[source.shop.eu]"))
    assert any(problem.endswith('stands in quotes: [source."shop.eu"]') for problem in problems), problems


@pytest.mark.parametrize(
    ("name", "shown"), [("", '""'), ("x" * 201, f'"{"x" * 20}..."'), ("é" * 101, f'"{"é" * 20}..."')]
)
def test_a_name_that_cannot_be_stored_is_refused(tmp_path: Path, name: str, shown: str) -> None:
    text = MINIMAL.replace("[source.db1]", f'[source."{name}"]').replace("[sink.kafka1]", f'[sink."{name}"]')
    assert [
        problem.partition(".toml: ")[2] for problem in problems_of(tmp_path, text.replace('"db1"', f'"{name}"'))
    ] == [f"{kind}: {shown} is no name of a {kind}: 1 to 200 bytes" for kind in ("source", "sink")]


def test_the_longest_name_can_be_stored_with_what_belongs_to_it(tmp_path: Path) -> None:
    name, topic = "x" * 200, "t" * 249
    text = MINIMAL.replace("[source.db1]", f"[source.{name}]").replace('"db1"', f'"{name}"')
    assert list(load(written(tmp_path, text), {}).sources) == [name]
    store = Store(tmp_path / "positions")
    store.open()
    store.put(name, StoredPosition(Position({}, "0/1"), {}))
    store.put_sink(name, {topic: "id"})
    assert (list(store.read_all()), store.read_sink(name)) == ([name], {topic: "id"})
    store.close()


@pytest.mark.parametrize("section", ["[log]", "[source.db1]", "[sink.kafka1]"])
@pytest.mark.parametrize("line", ['startTimeout = "5s"', 'start_timeout = "5s"', 'httpToken = "x"'])
def test_a_key_of_the_service_in_a_section_belongs_to_the_top(tmp_path: Path, section: str, line: str) -> None:
    [problem] = problems_of(tmp_path, with_line(MINIMAL, section, line))
    key = line.partition(" ")[0]
    assert problem.endswith(f"unknown key {key}; it belongs to the top of the file, above the first [section]")


def test_rows_may_be_put_aside_where_there_is_a_place_for_them_or_no_rule_does_so(tmp_path: Path) -> None:
    spark = MINIMAL.replace('["passthrough"]', '["spark"]')
    rule = "\n[spark]\nonError = 'dead-letter'\n[spark.tables.orders]\ncoerce = {id = 'int'}\n"
    assert load(written(tmp_path, with_line(spark, "[sink.kafka1]", 'deadLetterTopic = "dead"') + rule), {})
    assert load(written(tmp_path, f"{spark}{rule}onError = 'stop'"), {})


def test_rows_may_not_be_put_aside_before_a_sink_that_does_not_take_them(tmp_path: Path) -> None:
    sink = f"[sink.own]\ntype = '{PARTS}:MemorySink'\nsources = ['db1']\nhandlers = ['spark']\ngreeting = 'hello'\n"
    rule = "[spark]\nonError = 'dead-letter'\n[spark.tables.orders]\ncoerce = {id = 'int'}\n"
    (problem,) = problems_of(tmp_path, f"{MINIMAL}\n{sink}{rule}")
    assert 'sink.own.handlers: a rule of [spark] has onError = "dead-letter", and sinks of this type lose' in problem
    assert load(written(tmp_path, f"{MINIMAL}\n{sink}{rule}onError = 'stop'"), {})


def with_second_source(dsn: str, slot: str = "slot1") -> str:
    return f"""{MINIMAL}
        [source.db2]
        type = "postgres"
        dsn = "{dsn}"
        publication = "p"
        replicationSlot = "{slot}"
        """


@pytest.mark.parametrize(
    "dsn",
    [
        "host=localhost dbname=other",
        "postgresql://LOCALHOST:5432/other",
        "host=replica,localhost",
        "host=localhost,replica port=5432,5433",
    ],
)
def test_one_slot_of_one_server_has_one_source(tmp_path: Path, dsn: str) -> None:
    [problem] = problems_of(tmp_path, with_second_source(dsn))
    what = 'source.db2: replication slot "slot1" on localhost:5432 is already used by source.db1: give each its own'
    assert problem.endswith(what)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=elsewhere",
        "host=localhost port=5433",
        "hostaddr=10.0.0.1 host=localhost",
        "host=/var/run/postgresql",
        "service=shop",
        "dbname=shop",
        "host=a,b port=5432,5433",
    ],
)
def test_slots_of_one_name_on_different_servers_are_different_slots(tmp_path: Path, dsn: str) -> None:
    assert problems_of(tmp_path, with_second_source(dsn)) == []


@pytest.mark.parametrize(
    "dsn",
    ["host=/tmp/", "hostaddr=10.0.0.1", "host=a,b,c port=1,2,3", "host=x,::1", "service=shop", "dbname=shop"],
)
def test_a_slot_is_told_in_every_way_of_naming_its_server(tmp_path: Path, dsn: str) -> None:
    twice = with_second_source(dsn).replace("host=localhost dbname=shop password=hunter2-in-the-dsn", dsn)
    assert any("is already used by source.db1" in problem for problem in problems_of(tmp_path, twice))
    assert problems_of(tmp_path, twice.replace('"slot1"', '"slot2"', 1)) == []


def test_parts_of_ones_own_may_claim_things_too(tmp_path: Path) -> None:
    text = f"""{MINIMAL}
        [sink.one]
        type = "{PARTS}:MemorySink"
        sources = ["db1"]
        greeting = "hello"
        [sink.two]
        type = "{PARTS}:MemorySink"
        sources = ["db1"]
        greeting = "hello"
        """
    [problem] = problems_of(tmp_path, text)
    assert problem.endswith('sink.two: the greeting "hello" is already used by sink.one: give each its own')


def test_two_sinks_of_one_name_are_named_with_their_line(tmp_path: Path) -> None:
    text = f"{MINIMAL}\n[sink.kafka1]\ntype = 'stub_log'\n"
    line = text.splitlines().index("[sink.kafka1]", text[: text.rindex("[sink.kafka1]")].count("\n")) + 1
    [problem] = problems_of(tmp_path, text)
    assert f": line {line}: [sink.kafka1] is declared twice: every source and sink needs a name of its own" in problem


def test_a_key_given_twice_is_named_with_its_line(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, f'http = ":1"\n{MINIMAL.lstrip()}')
    assert problem.endswith(": line 2: this key has a value already: remove one of the two")


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, "http = \n")
    assert ": line 1: is not TOML: invalid value" in problem


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"^/nowhere/x\.toml: cannot be read: no such file or directory: name the file"
    ):
        load(Path("/nowhere/x.toml"), {})


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load(tmp_path, {})


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'http = "\xe9"')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(path, {})


def test_a_source_that_no_sink_takes_from_gives_a_warning(tmp_path: Path) -> None:
    text = f"""{MINIMAL}
        [source.db2]
        type = "postgres"
        dsn = "host=b"
        publication = "p"
        replicationSlot = "slot2"
        """
    [warning] = load(written(tmp_path, text), {}).warnings
    assert warning.endswith("source.db2: no sink takes from this source")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PSQL_STREAMER_HTTP", "PSQL_STREAMER__HTTP"),
        ("psql_streamer_drain_timeout", "PSQL_STREAMER__drain_timeout"),
        ("PSQL_STREAMER_SOURCE_DB1_DSN", "PSQL_STREAMER__SOURCE__..."),
        ("PSQL_STREAMER_SINK__KAFKA1__HOSTS", "PSQL_STREAMER__SINK__..."),
        ("PSQL_STREAMER_LOG_LEVEL", "PSQL_STREAMER__LOG__..."),
    ],
)
def test_a_variable_that_lacks_an_underscore_gives_a_warning(tmp_path: Path, name: str, meant: str) -> None:
    [warning] = load(written(tmp_path, MINIMAL), {name: "p4ssw0rd"}).warnings
    assert warning.startswith(f"environment variable {name} has no effect: ")
    assert warning.endswith(f", as in {meant}")
    assert "p4ssw0rd" not in warning


def test_a_variable_that_lacks_an_underscore_is_told_of_beside_what_is_missing_without_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"PSQL_STREAMER_SOURCE_DB1_DSN": "host=a"})
    assert len(caught.value.problems) == 2
    assert "PSQL_STREAMER_SOURCE_DB1_DSN has no effect" in caught.value.problems[1]


@pytest.mark.parametrize(
    "name",
    [
        "PSQL_STREAMER_IMAGE",
        "PSQL_STREAMER_PORT",
        "PSQL_STREAMER_SERVICE_HOST",
        "PSQL_STREAMER_HTTP_SERVICE_PORT",
        "PSQL_STREAMER_SINK_PORT_8080_TCP_ADDR",
        "PSQL_STREAMERS",
        "PSQL_STREAMER__HTTP",
    ],
)
def test_variables_of_others_give_no_warning(tmp_path: Path, name: str) -> None:
    assert load(written(tmp_path, MINIMAL), {name: "127.0.0.1:8081"}).warnings == ()


def test_settings_without_effect_give_warnings(tmp_path: Path) -> None:
    text = with_line(MINIMAL, "[sink.kafka1]", "async = true\nrequiredAcks = 0") + "\n[spark]\n"
    warnings = "\n".join(load(written(tmp_path, text), {}).warnings)
    assert "sink.kafka1: async = true has no effect" in warnings
    assert "sink.kafka1: requiredAcks = 0" in warnings
    assert "spark: has no effect: no sink has it among its handlers" in warnings


def test_a_sink_of_ones_own_has_handlers_and_warnings_like_others(tmp_path: Path) -> None:
    text = f"""{MINIMAL}
        [sink.own]
        type = "{PARTS}:MemorySink"
        sources = ["db1"]
        greeting = "too long a greeting"
        handlers = ["spark"]
        """
    config = load(written(tmp_path, text), {})
    assert config.list_handler_names("own") == ("spark",)
    assert [line.partition("sink.own: ")[2] for line in config.warnings] == ["greeting is long"]
