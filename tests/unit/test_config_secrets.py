"""No problem, warning or representation shows a secret, whatever is wrong with the file."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, ValidationError, model_validator

from psql_streamer.config import load
from psql_streamer.interfaces import Finding
from psql_streamer.options import PartOptions, SinkOptions
from psql_streamer.preflight import _report
from psql_streamer.redaction import is_secret, redact
from psql_streamer.spark.options import SparkOptions
from sinks.stub import StubDiscardSink
from sources.postgres.options import PostgresOptions
from sources.postgres.reader import Settings
from tests.config_files import MINIMAL, problems_of, written

SECRET = "Xq7Zr9Kw"
"""In every secret of these tests; it is no part of any word that a message may need."""

words = st.text(string.ascii_lowercase, min_size=1, max_size=8)
secrets = st.builds(lambda before, after: f"{before}{SECRET}{after}", words, words)
dsns = st.one_of(
    secrets,
    secrets.map(lambda secret: f"host=db password={secret}"),
    secrets.map(lambda secret: f"host=db password='{secret} {secret}'"),
    secrets.map(lambda secret: f"postgres://user:{secret}@host/db?x={secret}"),
)
harmless = st.one_of(
    words, st.integers(-10, 10), st.booleans(), st.floats(allow_nan=False), st.lists(words, max_size=2)
)
secret_values = st.one_of(
    dsns,
    st.lists(dsns, min_size=1, max_size=2),
    st.dictionaries(words, dsns, min_size=1, max_size=2),
)
secret_keys = st.sampled_from(
    ["dsn", "password", "sasl.password", "ssl.key.password", "clientSecret", "api_token", "dsns"]
)
keys = st.one_of(
    words,
    st.sampled_from(
        [
            "type",
            "publication",
            "replicationSlot",
            "batchSize",
            "timeout",
            "sources",
            "hosts",
            "handlers",
            "format",
            "key",
        ]
    ),
)
tables = st.builds(
    lambda plain, hidden, nested: {**plain, **nested, **hidden},
    st.dictionaries(keys, harmless, max_size=6),
    st.dictionaries(secret_keys, secret_values, max_size=3),
    st.dictionaries(
        st.sampled_from(["kafka", "tables", "conf"]), st.dictionaries(secret_keys, secret_values), max_size=1
    ),
)
sources = st.builds(lambda table, type_: {**table, "type": type_}, tables, st.sampled_from(["postgres", "kafka", "x"]))
sinks = st.builds(
    lambda table, type_: {**table, "type": type_},
    tables,
    st.sampled_from(["kafka", "stub_log", "sinks.kafka.sink:KafkaSink"]),
)
documents = st.fixed_dictionaries(
    {
        "source": st.dictionaries(words, sources, max_size=2),
        "sink": st.dictionaries(words, sinks, max_size=2),
    },
    optional={"spark": tables, "log": tables, "http": harmless, "password": secret_values, "tickerInterval": harmless},
)


@settings(max_examples=120, deadline=None)
@given(documents)
def test_no_problem_of_a_random_file_shows_a_secret(document: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        problems = problems_of(Path(folder), toml(document))
    assert problems
    assert SECRET not in "\n".join(problems)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["dsn", "batchSize", "timeout", "walRetain", "publication", "replicationSlot", "no_such_key"]),
    secrets,
)
def test_no_problem_shows_what_came_from_a_file(key: str, secret: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "secret").write_text(f"{secret}!")
        value = f"x-${{file:{folder}/secret}}"
        problems = problems_of(Path(folder), toml({"source": {"db1": {"type": "postgres", key: value}}}))
    assert SECRET not in "\n".join(problems)


SHORT = ("zqx", "is", "key", "a", "event", "port", "not")
"""Passwords that are words of our messages, and one that is not."""

SPOILED = {
    "an unknown property": "kafka = { 'sasl.password' = 'PASSWORD', 'no.such.property' = 'x' }",
    "a property with a wrong value": "kafka = { 'sasl.password' = 'PASSWORD', 'sasl.mechanism' = 'NO', acks = 'x' }",
    "a secret property with a wrong value": "kafka = { 'ssl.key.pem' = 'PASSWORD', 'security.protocol' = 'SSL' }",
    "properties that contradict each other": "kafka = { 'sasl.password' = 'PASSWORD', acks = 1 }\nrequiredAcks = -1",
    "a property that is ours": "kafka = { 'sasl.password' = 'PASSWORD', 'bootstrap.servers' = 'x:1' }",
    "a section that makes no sense": "kafka = { 'sasl.password' = 'PASSWORD' }\ndebeziumSchemas = true",
    "a number in its place": "kafka = { 'sasl.password' = ['PASSWORD'] }",
    "a topic from a file": "topicFallback = '${file:FILE}/'",
    "a format from a file": "format = '${file:FILE}x'",
    "a class from a file": "format = '${file:FILE}:Mine'",
    "a duration from a file": "timeout = '${file:FILE}'",
    "another key": "timeout = 'soon'\nkafka = { 'sasl.password' = 'PASSWORD' }",
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_wrong_reads_the_same_whatever_the_password_is(tmp_path: Path, what: str) -> None:
    """Neither a part of it nor stars in its place, and nothing that is there for one password and not for another."""
    told = {password: told_of(tmp_path, SPOILED[what], password) for password in SHORT}
    assert told["zqx"]
    assert "zqx" not in "".join(told["zqx"])
    assert list(told.values()) == [told["zqx"]] * len(told)


@pytest.mark.parametrize(
    "dsn", ["PASSWORD", "host=db PASSWORD", "host=db pasword=PASSWORD", "postgres://a:PASSWORD@[b"]
)
def test_a_dsn_in_wrong_syntax_reads_the_same_whatever_is_in_it(tmp_path: Path, dsn: str) -> None:
    text = MINIMAL.replace("host=localhost dbname=shop password=hunter2-in-the-dsn", dsn)
    assert text != MINIMAL
    told = [problems_of(tmp_path, text.replace("PASSWORD", password)) for password in SHORT]
    assert len(told[0]) == 1
    assert told == [told[0]] * len(told)


def told_of(folder: Path, spoiled: str, password: str) -> list[str]:
    (folder / "secret").write_text(password)
    return problems_of(folder, MINIMAL + spoiled.replace("PASSWORD", password).replace("FILE", f"{folder}/secret"))


@pytest.mark.parametrize("password", ["zqx", SECRET])
def test_a_third_partys_validator_is_not_trusted_with_a_secret(tmp_path: Path, password: str) -> None:
    table = f"type = '{__name__}:Careless'\nsources = ['db1']\ntoken = '{password}'\n"
    [problem] = problems_of(tmp_path, MINIMAL.partition("[sink")[0] + "[sink.mine]\n" + table + "wrong = true")
    assert "the reason is not shown" in problem
    assert password not in problem
    [problem] = problems_of(tmp_path, MINIMAL.partition("[sink")[0] + "[sink.mine]\n" + table + "odd = true")
    assert problem.endswith("sink.mine: something else is odd")


class CarelessOptions(SinkOptions):
    """What a third party might write."""

    token: str
    wrong: bool = False
    odd: bool = False

    @model_validator(mode="after")
    def _quotes(self) -> CarelessOptions:
        if self.wrong:
            raise ValueError(f'the token "{self.token}" is wrong')
        if self.odd:
            raise ValueError("something else is odd")
        return self


class Careless(StubDiscardSink):
    Options = CarelessOptions


def test_options_of_any_part_show_no_secret_in_their_repr_and_their_errors() -> None:
    nested = {"sasl.password": SECRET, "acks": {"api_key": 1, "secret": [SECRET]}}

    class Options(PartOptions):
        dsn: str = "x"
        api_token: str = "x"
        conf: dict[str, Any] = Field(default_factory=dict)
        password: int = 0

    shown = repr(Options(dsn=SECRET, api_token=SECRET, conf=nested))
    assert SECRET not in shown
    assert "acks" in shown
    with pytest.raises(ValidationError) as raised:
        Options.model_validate({"password": SECRET})
    assert SECRET not in str(raised.value)
    settings = Settings(SECRET, "s", ["p"], ("1", 1, "d"), 0, 0, 1.0, 1.0, 1, 1.0, 1, "a", "db1")
    assert SECRET not in repr(settings)
    options = SparkOptions(conf={"spark.hadoop.fs.s3a.secret.key": SECRET}, remote=f"sc://host:1/;token={SECRET}")
    assert SECRET not in repr(options)


@pytest.mark.parametrize("shown", [repr, str, vars, BaseModel.model_dump, BaseModel.model_dump_json])
def test_no_form_of_a_sources_options_shows_the_dsn(shown: Callable[[Any], Any]) -> None:
    dsn = f"host=db password={SECRET}"
    options = PostgresOptions.model_validate(
        {"type": "postgres", "dsn": dsn, "publication": "p", "replicationSlot": "s"}
    )
    assert SECRET not in str(shown(options))
    assert options.connection_string == dsn


def test_a_third_partys_check_is_not_trusted_with_a_secret_string() -> None:
    class Options(PartOptions):
        access: SecretStr

    def look() -> Iterator[Finding]:
        raise RuntimeError(f"{SECRET} was refused")

    [finding] = _report("sink.mine", Options(access=SecretStr(SECRET)), look).findings
    assert finding.problem == "its check failed with RuntimeError"


def test_a_password_in_a_value_that_is_shown_is_taken_out(tmp_path: Path) -> None:
    [problem] = [
        problem
        for problem in problems_of(tmp_path, f'http = "postgres://user:{SECRET}@host/db"\n')
        if ": http:" in problem
    ]
    assert '"postgres://user:***@host/db" is not an address' in problem


@pytest.mark.parametrize(
    "key",
    [
        "dsn",
        "DSN",
        "password",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "PG_PASSWORD",
        "clientSecret",
        "token",
    ],
)
def test_keys_of_secrets_are_known(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["key", "ssl.key.location", "ssl.keystore.location", "publication", "hosts", "sasl.username"]
)
def test_other_keys_are_shown(key: str) -> None:
    assert not is_secret(key)


def test_the_repr_of_a_configuration_shows_no_secret(tmp_path: Path) -> None:
    text = f"{MINIMAL}\n[sink.kafka1.kafka]\n'sasl.password' = '{SECRET}'"
    text = text.replace("hunter2-in-the-dsn", SECRET)
    assert SECRET not in repr(load(written(tmp_path, text), {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at postgres://me:pw@host/db?x=1 now", "at postgres://me:***@host/db?x=1 now"),
        ("at postgresql://:p@w@host now", "at postgresql://:***@host now"),
        ("at http://host:80/path now", "at http://host:80/path now"),
        ("host=a password=pw user=b", "host=a password=*** user=b"),
        ("host=a password = 'p w\\' x' user=b", "host=a password = *** user=b"),
        ("postgres://h/db?password=pw&sslmode=x", "postgres://h/db?password=***&sslmode=x"),
        ('{"sasl.password": "p w", "x": 1}', '{"sasl.password": ***, "x": 1}'),
        ("ssl.key.password=pw,a=b", "ssl.key.password=***,a=b"),
        ("PGPASSWORD=pw psql", "PGPASSWORD=*** psql"),
        ("denied for user 'a'@'b' (using password: NO) (1045)", "denied for user 'a'@'b' (using password: NO) (1045)"),
        ("at postgresql+psycopg_async://me:pw@host/db now", "at postgresql+psycopg_async://me:***@host/db now"),
        ("ibm_db_sa://me:p@w@host", "ibm_db_sa://me:***@host"),
        ("mssql+pyodbc://h/x?UID=u&PWD=pw&Encrypt=no", "mssql+pyodbc://h/x?UID=u&PWD=***&Encrypt=no"),
        ("DRIVER={A B};UID=u;PWD={p w;x}}y};Encrypt=no", "DRIVER={A B};UID=u;PWD=***;Encrypt=no"),
        (
            "mssql+pyodbc:///?odbc_connect=UID%3Du%3BPWD%3Dp%20w&x=1",
            "mssql+pyodbc:///?odbc_connect=UID%3Du%3BPWD%3D***&x=1",
        ),
        ('FATAL: password authentication failed for user "x"', 'FATAL: password authentication failed for user "x"'),
        ("write ${PG_PASSWORD:-default}", "write ${PG_PASSWORD:-default}"),
        ("password=${PG_PASSWORD:-pw} is", "password=*** is"),
        ("the default in ${PG_PASSWORD:-pw}", "the default in ${PG_PASSWORD:***"),
        ("public.password_resets: it has no key", "public.password_resets: it has no key"),
        ("public.token: has no key", "public.token: has no key"),
        ("variable PG_PASSWORD: is not set", "variable PG_PASSWORD: is not set"),
        ("X__SASL_PASSWORD: unknown key passwords", "X__SASL_PASSWORD: unknown key passwords"),
        ("topic shop.public.token: Broker: too large", "topic shop.public.token: Broker: too large"),
        ("password: island of x", "password: *** of x"),
        ("password: is", "password: ***"),
        ("password=is x", "password=*** x"),
        ("role r may not read public.api_tokens: the snapshot", "role r may not read public.api_tokens: the snapshot"),
        ('{"tokens": "a b", "x": 1}', '{"tokens": ***, "x": 1}'),
        ("tokens=pw secret: pw", "tokens=*** secret: ***"),
    ],
)
def test_passwords_are_taken_out_of_texts(text: str, expected: str) -> None:
    assert redact(text) == expected


@given(st.text(max_size=60))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def toml(document: dict[str, Any]) -> str:
    """JSON's strings, numbers, lists are TOML; tables are written inline."""
    return "".join(f"{json.dumps(key)} = {inline(value)}\n" for key, value in document.items())


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return repr(value).replace("e+", "e") if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
