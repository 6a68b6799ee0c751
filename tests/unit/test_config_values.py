"""`${...}` in the file, and what the environment sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.config import Config, HttpAddress, load
from psql_streamer.errors import ConfigError
from sources.postgres.options import PostgresOptions
from tests.config_files import MINIMAL, problems_of, with_line, written

HANDFUL = {"PG_HOST": "db.example.com", "PG_DATABASE": "shop", "KAFKA_BROKERS": "k1:9092, k2:9093"}


def dsn_of(config: Config, source: str = "db1") -> str:
    options = config.sources[source].options
    assert isinstance(options, PostgresOptions)
    return options.connection_string


def with_dsn(dsn: str) -> str:
    return MINIMAL.replace("host=localhost dbname=shop password=hunter2-in-the-dsn", dsn)


def test_variables_expand_in_values(tmp_path: Path) -> None:
    text = with_dsn("host=${PG_HOST} port=${PG_PORT:-5432} user=${EMPTY:-nobody} password=${PASSWORD:-}")
    config = load(written(tmp_path, text), {"PG_HOST": "db", "EMPTY": ""})
    assert dsn_of(config) == "host=db port=5432 user=nobody password="


def test_variables_expand_in_lists_tables_and_numbers(tmp_path: Path) -> None:
    text = MINIMAL.replace('"localhost:9092"', '"${BROKER}"').replace("[log]", '[log]\nlevel = "${LEVEL}"')
    text = with_line(text, "[sink.kafka1]", 'maxAttempts = "${ATTEMPTS}"\ntableTopicMapping = { orders = "${TOPIC}" }')
    config = load(written(tmp_path, text), {"BROKER": "k:1", "LEVEL": "debug", "ATTEMPTS": "7", "TOPIC": "t"})
    options = config.sinks["kafka1"].options.model_dump()
    assert (options["hosts"], options["max_attempts"]) == (("k:1",), 7)
    assert options["table_topic_mapping"] == {"orders": ({"topic": "t", "key": None},)}
    assert config.log.level == "debug"


def test_a_file_expands_without_its_last_line_end(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass word\n")
    config = load(written(tmp_path, with_dsn(f"host=db password='${{file:{secret}}}'")), {})
    assert dsn_of(config) == "host=db password='pass word'"


def test_a_dollar_without_a_brace_means_itself(tmp_path: Path) -> None:
    text = with_dsn("password=pa$$word$ user=$USER options=$${USER}")
    assert dsn_of(load(written(tmp_path, text), {"USER": "me"})) == "password=pa$$word$ user=$USER options=${USER}"


def test_a_dollar_and_a_brace_that_are_meant_need_no_other_brace(tmp_path: Path) -> None:
    config = load(written(tmp_path, with_dsn("password=a$${b user=${USER} options=$$${x")), {"USER": "me"})
    assert dsn_of(config) == "password=a${b user=me options=$${x"


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        (
            "host=${PG_HOST}",
            "source.db1.dsn: ${PG_HOST} is not set: set the environment variable, or write ${PG_HOST:-",
        ),
        ("host=${file:/nowhere/x}", "source.db1.dsn: ${file:/nowhere/x} cannot be read: no such file or directory"),
        ("host=${PG_HOST", "source.db1.dsn: holds a ${ without its }: write ${NAME}, or $${ for ${ itself"),
        ("host=${PG HOST}", "source.db1.dsn: holds a ${...} that is none of ${NAME}, ${NAME:-default}, ${file:PATH}"),
    ],
)
def test_what_cannot_be_expanded_is_named(tmp_path: Path, dsn: str, expected: str) -> None:
    [problem] = problems_of(tmp_path, with_dsn(dsn))
    assert expected in problem


def test_a_variable_with_a_value_of_the_wrong_type_is_shown_as_it_was_written(tmp_path: Path) -> None:
    text = with_line(MINIMAL, "[source.db1]", 'batchSize = "${SIZE}"')
    [problem] = problems_of(tmp_path, text, {"SIZE": "not-to-be-shown"})
    assert problem.endswith('source.db1.batchSize: "${SIZE}" is not allowed: must be a whole number')


@pytest.mark.parametrize(
    "name",
    [
        "PSQL_STREAMER__SOURCE__DB1__BATCH_SIZE",
        "PSQL_STREAMER__SOURCE__DB1__BATCHSIZE",
        "psql_streamer__source__db1__batchSize",
    ],
)
def test_a_variable_sets_a_key_whatever_its_case(tmp_path: Path, name: str) -> None:
    for text in (MINIMAL, with_line(MINIMAL, "[source.db1]", "batchSize = 7")):
        config = load(written(tmp_path, text), {name: "4711"})
        assert config.sources["db1"].options.model_dump()["batch_size"] == 4711


def test_variables_set_keys_of_every_level(tmp_path: Path) -> None:
    environ = {
        "PSQL_STREAMER__HTTP": ":9",
        "PSQL_STREAMER__TICKER_INTERVAL": "3s",
        "PSQL_STREAMER__LOG__FORMAT": "json",
        "PSQL_STREAMER__SINK__KAFKA1__HOSTS": "a:1,b:2",
        "PSQL_STREAMER__SINK__KAFKA1__HANDLERS": '["spark"]',
        "PSQL_STREAMER__SINK__KAFKA1__TOPIC_PREFIX": "2024",
        "PSQL_STREAMER__SINK__KAFKA1__HEADERS": "TRUE",
        "PSQL_STREAMER__SINK__KAFKA1__KAFKA__LINGER_MS": "7",
        "PSQL_STREAMER__SINK__KAFKA1__KAFKA__SASL_PASSWORD": "0123",
        "PSQL_STREAMER__SPARK__APPNAME": "x",
        "PSQL_STREAMER__SPARK__CONF__SPARK_SQL_SHUFFLE_PARTITIONS": "3",
        "PSQL_STREAMER__SINK__LOG__TYPE": "stub_log",
        "PSQL_STREAMER__SINK__LOG__SOURCES": "db1",
    }
    config = load(written(tmp_path, MINIMAL), environ)
    kafka = config.sinks["kafka1"].options.model_dump()
    spark = config.handlers["spark"].options.model_dump()
    assert (config.http, config.ticker_interval, config.log.format) == (HttpAddress("", 9), 3, "json")
    assert (kafka["hosts"], kafka["topic_prefix"], kafka["headers"]) == (("a:1", "b:2"), "2024", True)
    assert kafka["kafka"] == {"linger.ms": 7, "sasl.password": "0123"}
    assert (spark["app_name"], spark["conf"]) == ("x", {"spark.sql.shuffle.partitions": "3"})
    assert list(config.sinks) == ["kafka1", "log"]


def test_variables_are_taken_as_they_are(tmp_path: Path) -> None:
    config = load(written(tmp_path, MINIMAL), {"PSQL_STREAMER__SOURCE__DB1__DSN": "password=${file:/x}$$"})
    assert dsn_of(config) == "password=${file:/x}$$"


def test_a_variable_in_place_of_a_value_that_cannot_expand(tmp_path: Path) -> None:
    config = load(written(tmp_path, with_dsn("${NOT_SET}")), {"PSQL_STREAMER__SOURCE__DB1__DSN": "host=x"})
    assert dsn_of(config) == "host=x"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SOURCE__DB1__BATCH_SIZE", "-5", ": -5 is not allowed: must be greater than 0"),
        ("SOURCE__DB1__BATCHSIZ", "5", ": unknown key batchsiz; did you mean batchSize?"),
        ("HTTP__PORT", "5", ": http is not a table of settings"),
        ("SOURCE__DB1__TYPE", "pg", ': "pg" is not a known source; did you mean postgres?'),
    ],
)
def test_a_problem_names_the_variable(tmp_path: Path, name: str, value: str, expected: str) -> None:
    [problem] = problems_of(tmp_path, MINIMAL, {f"PSQL_STREAMER__{name}": value})
    assert f"environment variable PSQL_STREAMER__{name}{expected}" in problem


def test_a_variable_that_names_a_section_which_the_file_does_not_have_is_named_with_the_one_that_is_meant(
    tmp_path: Path,
) -> None:
    [problem] = problems_of(tmp_path, MINIMAL, {"PSQL_STREAMER__SOURCE__BD1__BATCH_SIZE": "5"})
    assert "source.bd1.type: is required" in problem
    variable = "environment variable PSQL_STREAMER__SOURCE__BD1__BATCH_SIZE makes this section; did you mean db1?"
    assert problem.endswith(variable)


def test_a_handful_of_variables_is_a_configuration(tmp_path: Path) -> None:
    config = load(None, {**HANDFUL, "HOME": str(tmp_path)})
    assert config.name == "environment"
    assert config.http == HttpAddress("127.0.0.1", 8080)
    assert config.lmdb == tmp_path / ".local/state/psql-streamer/positions"
    assert config.lmdb.parent.is_dir()
    source = config.sources["postgres"].options.model_dump()
    assert parse_dsn(dsn_of(config, "postgres")) == {"host": "db.example.com", "dbname": "shop"}
    assert (source["publications"], source["replication_slot"]) == (("psql_streamer",), "psql_streamer")
    sink = config.sinks["kafka"].options.model_dump()
    assert (sink["hosts"], sink["topic_prefix"]) == (("k1:9092", "k2:9093"), "shop")
    assert config.list_handler_names("kafka") == ("spark",)


def test_all_of_the_handful(tmp_path: Path) -> None:
    environ = {
        **HANDFUL,
        "XDG_STATE_HOME": str(tmp_path),
        "PG_PORT": "6000",
        "PG_USERNAME": "o'neill",
        "PG_PASSWORD": r"a '\ ${b} $$ c",
        "PG_PUBLICATION": "p",
        "PG_SLOT": "s",
        "KAFKA_TOPIC_PREFIX": "x",
        "PSQL_STREAMER__SINK__KAFKA__HANDLERS": '["passthrough"]',
        "PSQL_STREAMER__HTTP": ":1",
    }
    config = load(None, environ)
    source = config.sources["postgres"].options.model_dump()
    assert parse_dsn(dsn_of(config, "postgres")) == {
        "host": "db.example.com",
        "port": "6000",
        "dbname": "shop",
        "user": "o'neill",
        "password": r"a '\ ${b} $$ c",
    }
    assert (source["publications"], source["replication_slot"]) == (("p",), "s")
    assert config.sinks["kafka"].options.model_dump()["topic_prefix"] == "x"
    assert config.handlers == {}
    assert config.http.port == 1


def test_a_part_of_the_handful_names_what_is_missing() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"PG_HOST": "db"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "environment variable PG_DATABASE",
        "environment variable KAFKA_BROKERS",
    ]


def test_nothing_at_all_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"no configuration: give -config FILE, or set .* PG_HOST, PG_DATABASE"):
        load(None, {})


def test_a_bad_value_of_the_handful_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment variable PG_SLOT: "):
        load(None, {**HANDFUL, "HOME": str(tmp_path), "PG_SLOT": "not a slot"})


def test_the_environment_alone_may_hold_everything() -> None:
    config = load(
        None,
        {
            "PSQL_STREAMER__HTTP": ":1",
            "PSQL_STREAMER__LMDB": "/x",
            "PSQL_STREAMER__SOURCE__A__TYPE": "postgres",
            "PSQL_STREAMER__SOURCE__A__DSN": "host=h",
            "PSQL_STREAMER__SOURCE__A__PUBLICATION": "p",
            "PSQL_STREAMER__SOURCE__A__REPLICATION_SLOT": "s",
            "PSQL_STREAMER__SINK__B__TYPE": "stub_discard",
            "PSQL_STREAMER__SINK__B__SOURCES": '["a"]',
        },
    )
    assert (list(config.sources), list(config.sinks)) == (["a"], ["b"])


def test_a_file_makes_the_handful_meaningless(tmp_path: Path) -> None:
    config = load(written(tmp_path, MINIMAL), HANDFUL)
    assert list(config.sources) == ["db1"]
