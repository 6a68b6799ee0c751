"""`psql-streamer try`: what a rule makes of captured changes, as the service would, and nothing is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.cli import main
from psql_streamer.spark.handler import SparkHandler
from tests.database import Database
from tests.integration.conftest import MASTER

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

EVENTS = [
    (
        '{"relation": {"table": "orders", "columns": [{"name": "id", "type": "bigint", "key": true},'
        ' {"name": "amount", "type": "numeric(12,2)"}, {"name": "mail", "type": "text"},'
        ' {"name": "body", "type": "text"}]}}'
    ),
    '{"op": "insert", "commit": 4096, "xid": 7, "after": {"id": 1, "amount": "10.00", "mail": "a@x.org", "body": "b"}}',
    '{"op": "insert", "commit": 4096, "xid": 7, "after": {"id": 2, "amount": "-1.00", "mail": "b@x.org", "body": ""}}',
    (
        '{"op": "update", "commit": 8192, "xid": 8, "before": {"id": 1}, "after": {"id": 3, "amount": "5.00",'
        ' "mail": "c@x.org"}}'
    ),
    '{"op": "delete", "commit": 9999, "xid": 9, "before": {"id": 3}}',
]

DSN = "host=127.0.0.1 port=1 dbname=shop"

CONFIG = f"""
http = ":0"
lmdb = "/nonexistent/positions"
[source.db1]
type = "postgres"
dsn = "{DSN}"
publication = "shop"
replicationSlot = "shop"
[sink.kafka]
type = "kafka"
sources = ["db1"]
hosts = ["127.0.0.1:1"]
topicPrefix = "shop"
deadLetterTopic = "shop.dead"
headers = true
[spark]
master = "{MASTER}"
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    engine: SparkHandler,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command over EVENTS with these rules: exit code, stdout, stderr."""

    def ran(rules: str, *arguments: str, events: list[str] = EVENTS, dsn: str = DSN) -> tuple[int, str, str]:
        config, file = tmp_path / "psql-streamer.toml", tmp_path / "events.jsonl"
        config.write_text(CONFIG.replace(DSN, dsn) + rules)
        file.write_text("\n".join(events))
        code = main(["try", "-c", str(config), "--events", str(file), *arguments])
        return code, *capsys.readouterr()

    return ran


def _json(run: Run, rules: str, *arguments: str) -> Any:
    code, out, err = run(rules, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


MASKED = """
[spark.tables."public.orders"]
sql = "SELECT * EXCEPT (mail), sha2(mail, 256) AS mail, length(body) AS n FROM changes WHERE amount > 0"
"""


def test_every_change_is_shown_with_what_would_be_sent_of_it(run: Run) -> None:
    told = _json(run, MASKED, "--table", "orders")
    inserted, dropped, moved, deleted = told["changes"]
    assert [one["outcome"] for one in told["changes"]] == ["sent", "dropped", "sent", "sent"]
    assert told["outcomes"] == {"sent": 3, "dropped": 1}
    assert inserted["change"]["after"]["mail"] == "a@x.org"
    [event] = inserted["events"]
    assert (event["topic"], event["key"]) == ("shop.public.orders", {"id": 1})
    assert event["headers"]["op"] == "insert"
    columns = event["value"]["Columns"]
    assert columns["id"], columns["n"] == (1, 1)
    assert len(columns["mail"]) == 64
    assert dropped["events"] == []
    assert [event["value"]["Action"] for event in moved["events"]] == ["delete", "insert"], "an update of the key"
    assert "n" not in moved["events"][1]["value"]["Columns"], "what is computed from a value that was not sent"
    assert deleted["events"][0]["key"] == {"id": 3}


def test_it_is_told_side_by_side_within_the_width_of_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(MASKED)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("--- 1  insert public.orders (0/1000, 0) ---")
    assert [line for line in lines if line.startswith("mail    a@x.org") and "| key" not in line]
    assert [line for line in lines if line.endswith("| topic shop.public.orders")]
    assert [line for line in lines if line.endswith("| dropped by the rule")]
    assert lines[-1] == "3 changes are sent, 1 is dropped by the rule"


def test_a_row_that_a_rule_cannot_take_is_a_dead_letter_with_its_reason(run: Run) -> None:
    rules = '[spark.tables.orders]\ncoerce = { mail = "int" }\nonError = "dead-letter"\n'
    told = _json(run, rules)
    assert told["outcomes"] == {"dead-letter": 3, "sent": 1}
    [letter] = told["changes"][0]["dead_letters"]
    assert letter["reason"] == "public.orders, rule 'orders': the value of column mail cannot be coerced to int"
    assert (letter["topic"], letter["rule"], letter["column"]) == ("shop.dead", "orders", "mail")
    assert letter["events"][0]["value"]["Columns"]["mail"] == "a@x.org", "as the event without the rule"


def test_a_rule_that_would_stop_the_service_is_an_error_in_its_words(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    code, out, err = run('[spark.tables.orders]\ncoerce = { mail = "int" }\n')
    assert code == 1
    assert out == ""
    assert "public.orders, rule 'orders': the value of column mail in change (0/1000, 0) cannot be coerced" in err
    assert "x.org" not in err + caplog.text


def test_changes_of_other_tables_pass_and_only_those_asked_for_are_shown(run: Run) -> None:
    other = '{"relation": {"table": "other", "columns": [{"name": "id", "type": "int4", "key": true}]}}'
    rules = '[spark.tables.never]\nsql = "SELECT * FROM changes"\n'
    told = json.loads(run(rules, "--json", "-t", "other", events=[*EVENTS, other, '{"op":"read","after":{"id":9}}'])[1])
    [change] = told["changes"]
    assert (change["table"], change["events"][0]["key"]) == ("public.other", {"id": 9})


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--table", "public.ordres"], 2, 'no change of "public.ordres"; there are changes of public.orders'),
        (["--sink", "kafca"], 2, 'there is no sink "kafca"; did you mean kafka?'),
        (["--events", "/nonexistent"], 1, "/nonexistent: No such file"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_words(run: Run, arguments: list[str], code: int, says: str) -> None:
    found, _, err = run(MASKED, *arguments)
    assert found == code
    assert says in err


def test_a_sink_that_writes_no_events_shows_them_in_the_default_format(run: Run) -> None:
    rules = '[sink.log]\ntype = "stub_log"\nsources = ["db1"]\nhandlers = ["spark"]\n' + MASKED
    told = _json(run, rules, "--sink", "log")
    [event] = told["changes"][0]["events"]
    assert event["topic"] is None
    assert event["value"]["Action"] == "insert"


def test_several_sinks_need_a_name(run: Run) -> None:
    code, _, err = run('[sink.log]\ntype = "stub_log"\nsources = ["db1"]\n')
    assert code == 2
    assert "which sink: say it with --sink: kafka, log" in err


def test_the_table_without_a_topic_says_so(run: Run) -> None:
    config = '[sink.two]\ntype = "kafka"\nsources = ["db1"]\nhosts = ["127.0.0.1:1"]\ntableTopicMapping = { a = "a" }\n'
    told = _json(run, config + "deadLetterTopic = 'dead'\n" + MASKED, "--sink", "two")
    assert told["outcomes"] == {"no-topic": 3, "dropped": 1}


TWO_SINKS = """
[sink.partners]
type = "kafka"
sources = ["db1"]
hosts = ["127.0.0.1:1"]
topicPrefix = "partners"
[[spark.tables.orders]]
sinks = ["kafka"]
sql = "SELECT id, mail FROM changes"
[[spark.tables.orders]]
sinks = ["partners"]
sql = "SELECT id FROM changes WHERE id <> 1"
"""


@pytest.mark.parametrize(("sink", "first"), [("kafka", [{"id": 1, "mail": "a@x.org"}]), ("partners", [])])
def test_a_rule_for_some_sinks_is_tried_for_these(run: Run, sink: str, first: list[Any]) -> None:
    told = _json(run, TWO_SINKS, "--sink", sink)
    assert [event["value"]["Columns"] for event in told["changes"][0]["events"]] == first


PARTS = """
[spark.tables.carts]
coerce = { items = "array<string>" }
sql = '''
SELECT id, item, position AS _part, item AS _key, map('cart', string(id)) AS _headers,
    IF(item = 'apple', 'fruit', NULL) AS _topic
FROM changes LATERAL VIEW posexplode(items) AS position, item
'''
"""
CARTS = [
    (
        '{"relation": {"table": "carts", "replica_identity": "full", "columns":'
        ' [{"name": "id", "type": "bigint", "key": true}, {"name": "items", "type": "text[]"}]}}'
    ),
    '{"op": "insert", "after": {"id": 1, "items": ["apple", "bolt"]}}',
    '{"op": "insert", "after": {"id": 2, "items": []}}',
    '{"op": "update", "before": {"id": 1, "items": ["apple", "bolt"]}, "after": {"id": 1, "items": ["bolt", "corn"]}}',
    '{"op": "delete", "before": {"id": 1, "items": ["bolt", "corn"]}}',
]


def test_every_row_that_a_change_becomes_is_shown_beside_it(run: Run) -> None:
    told = json.loads(run(PARTS, "--json", events=CARTS)[1])
    made = [
        [(event["topic"], event["key"], event["value"]["Action"], event["headers"]["cart"]) for event in one["events"]]
        for one in told["changes"]
    ]
    assert [one["outcome"] for one in told["changes"]] == ["sent", "dropped", "sent", "sent"]
    assert made == [
        [("fruit", "apple", "insert", "1"), ("shop.public.carts", "bolt", "insert", "1")],
        [],
        [
            ("fruit", "apple", "delete", "1"),
            ("shop.public.carts", "bolt", "update", "1"),
            ("shop.public.carts", "corn", "insert", "1"),
        ],
        [("shop.public.carts", "bolt", "delete", "1"), ("shop.public.carts", "corn", "delete", "1")],
    ]


MAPPED = PARTS + '[sink.two]\ntype = "kafka"\nsources = ["db1"]\nhosts = ["127.0.0.1:1"]\n'


def test_rows_without_a_topic_are_told_beside_those_that_have_one(run: Run) -> None:
    rules = MAPPED + 'deadLetterTopic = "dead"\ntableTopicMapping = { a = "a" }\n'
    told = json.loads(run(rules, "--json", "--sink", "two", events=CARTS)[1])
    first = told["changes"][0]
    assert (first["outcome"], len(first["events"]), first["without_topic"]) == ("sent", 1, 1)
    out = run(rules, "--sink", "two", events=CARTS)[1]
    assert "| key apple\n" in out
    assert "| 1 row has no topic: see tableTopicMapping" in out


@pytest.mark.parametrize("number", ["", '"id": "4711", '], ids=["no number", "the number of another database"])
def test_a_changelog_is_as_it_was_if_its_rows_are_among_the_events(run: Run, database: Database, number: str) -> None:
    database.execute(
        "CREATE TABLE customers (id bigint PRIMARY KEY, segment text); CREATE PUBLICATION shop FOR ALL TABLES;"
        "INSERT INTO customers VALUES (7, 'gold'), (8, 'tin')"
    )
    rules = """
    [spark.lookups.customers]
    kind = "changelog"
    source = "db1"
    table = "public.customers"
    [spark.tables.orders]
    sql = "SELECT c.id, l.segment FROM changes c LEFT JOIN customers l ON l.id = c.customer"
    """
    customers = (
        '{"relation": {' + number + '"table": "customers", "columns":'
        ' [{"name": "id", "type": "bigint", "key": true}, {"name": "segment", "type": "text"}]}}'
    )
    orders = customers.replace("customers", "orders").replace("4711", "4712")
    orders = orders.replace('"segment", "type": "text"', '"customer", "type": "int8"')
    events = [customers, '{"op": "read", "after": {"id": 7, "segment": "silver"}}']
    events += [orders, *(f'{{"op": "insert", "after": {{"id": {one}, "customer": {one}}}}}' for one in (7, 8))]
    events += [customers, '{"op": "update", "after": {"id": 7, "segment": "gold"}}']
    events += [orders, '{"op": "insert", "after": {"id": 9, "customer": 7}}']
    code, out, err = run(rules, "--json", "--table", "orders", events=events, dsn=database.dsn)
    assert code == 0, err
    joined = [one["events"][0]["value"]["Columns"]["segment"] for one in json.loads(out)["changes"]]
    assert joined == ["silver", "tin", "gold"]
    assert "lookup customers begins with the rows that public.customers has now" in err


def test_a_lookup_that_cannot_be_read_is_told(run: Run) -> None:
    rules = """
    [spark.lookups.customers]
    kind = "changelog"
    source = "db1"
    table = "public.customers"
    [spark.tables.orders]
    sql = "SELECT c.* FROM changes c LEFT JOIN customers l ON l.id = c.id"
    """
    code, _, err = run(rules)
    assert code == 1
    assert "lookup customers: " in err
    assert "port 1" in err
    file = 'kind = "csv"\npath = "/nonexistent/customers.csv"\n'
    code, _, err = run(re.sub(r'kind(.|\n)*public.customers"\n', file, rules))
    assert code == 1
    assert "lookup customers has not been read yet: " in err.splitlines()[-1]
    assert "/nonexistent/customers.csv" in err.splitlines()[-1]
    elsewhere = 'kind = "jdbc"\nurl = "jdbc:unknown://db/shop?password=secret"\ntable = "customers"\n'
    code, _, err = run(re.sub(r'kind(.|\n)*public.customers"\n', elsewhere, rules))
    assert code == 1
    assert "no JDBC driver takes its url: name the driver in [spark], under packages or jars" in err.splitlines()[-1]
    assert "secret" not in err
