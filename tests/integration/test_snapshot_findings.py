"""What `check` says before a snapshot is taken."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.interfaces import Severity
from sources.postgres.snapshot import findings
from tests.database import Database
from tests.source_at_work import source_of


def found(database: Database, snapshot: Any = "initial", **options: Any) -> list[tuple[Severity, str]]:
    given = source_of(database, snapshot=snapshot, **options).check()
    return [(finding.severity, finding.problem) for finding in given]


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v text); CREATE TABLE log (v text); CREATE TABLE outside (v text);"
        "ALTER TABLE log REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE orders, log"
    )
    return database


KEYLESS = "public.log has no key: its rows are read only when the source creates its slot"


@pytest.mark.behaviour("N14")
def test_n14_a_table_without_a_key_is_found_if_it_is_to_be_read(shop: Database) -> None:
    assert found(shop) == [(Severity.WARNING, KEYLESS)]
    assert found(shop, "always") == [(Severity.WARNING, KEYLESS)]
    assert found(shop, {"tables": ["orders"]}) == []
    assert found(shop, "never") == []
    shop.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"s_{shop.name}")
    assert found(shop) == [(Severity.WARNING, f"{KEYLESS}, which exists already")]


@pytest.mark.behaviour("N14")
def test_n14_what_the_role_may_not_read_is_found_with_its_remedy(shop: Database) -> None:
    role = f"r_{shop.name}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON log TO {role};"
        "CREATE POLICY few ON log USING (false); ALTER TABLE log ENABLE ROW LEVEL SECURITY"
    )
    try:
        source = source_of(shop, dsn=make_dsn(shop.dsn, user=role), snapshot="initial")
        assert [(one.severity, one.problem, one.remedy) for one in source.check()] == [
            (
                Severity.WARNING,
                f"row-level security of public.log hides rows from role {role}: the snapshot leaves the table out",
                f"ALTER ROLE {role} BYPASSRLS, or read as the table's owner",
            ),
            (
                Severity.WARNING,
                f"role {role} may not read public.orders: the snapshot leaves the table out",
                f'GRANT SELECT ON "public"."orders" TO {role}',
            ),
        ]
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.behaviour("N14")
def test_n14_entries_that_fit_no_table_and_conditions_that_the_server_refuses_are_found(shop: Database) -> None:
    section = {"tables": ["orders", "ordes", "old_*"], "where": {"orders": "idd > 5 -- x", "public.ordrs": "true"}}
    assert found(shop, section) == [
        (Severity.WARNING, 'snapshot.tables has "ordes", which is no table of the publications'),
        (Severity.WARNING, 'snapshot.tables has "old_*", which is no table of the publications'),
        (Severity.WARNING, 'snapshot.where has "public.ordrs", which is no table of the publications'),
        (Severity.ERROR, 'the server refuses the condition of public.orders: column "idd" does not exist'),
    ]
    assert found(shop, {"tables": ["orders"], "where": {"orders": "v LIKE 'a%' -- x"}}) == []


@pytest.mark.behaviour("N14")
def test_n14_transactions_that_have_long_been_writing_are_found(
    shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_OLD_MINUTES", 0)
    with shop.session() as writing, shop.session() as reading:
        for session, query in ((writing, "INSERT INTO orders VALUES (1)"), (reading, "SELECT FROM orders")):
            with session.cursor() as cursor:
                cursor.execute(query)
        pid = writing.info.backend_pid
        told = found(shop, {"tables": ["orders"]})
        assert [severity for severity, _ in told] == [Severity.WARNING]
        assert told[0][1].startswith(f"PID {pid} has been in a transaction that writes for 0 minutes")
        shop.execute("SELECT pg_terminate_backend(%s)", pid)
    assert found(shop, {"tables": ["orders"]}) == []


@pytest.mark.behaviour("N14")
def test_n14_too_few_free_connections_are_found(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    free = int(shop.value(findings._FREE_CONNECTIONS))
    allowed = int(shop.value("SHOW max_connections"))
    assert allowed - 20 < free < allowed - 3  # three are reserved, and some are used
    monkeypatch.setattr(findings, "_BESIDE_CHUNKS", allowed)
    [(severity, what)] = found(shop, {"tables": ["orders"], "parallel": 3})
    assert severity is Severity.WARNING
    assert what.endswith(f"free connections, and a snapshot needs {allowed + 3}")


@pytest.mark.behaviour("N14")
def test_n14_tables_that_are_locked_keep_nobody_waiting_and_a_condition_that_waits_says_so(shop: Database) -> None:
    shop.execute("CREATE TABLE new (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE new WHERE (id > 0)")
    section = {"tables": ["orders", "new"], "where": {"orders": "id > 5"}}
    with shop.session() as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE orders, new IN ACCESS EXCLUSIVE MODE")
        [(severity, problem)] = found(shop, section)
    assert severity is Severity.WARNING
    assert problem.startswith("the condition of public.orders was not looked at: somebody holds, or awaits, ACCESS")
    assert found(shop, section) == []


@pytest.mark.behaviour("N14")
def test_n14_limits_of_the_role_and_of_the_database_on_connections_are_found(shop: Database) -> None:
    role = f"r_{shop.name}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION CONNECTION LIMIT 4; GRANT SELECT ON orders TO {role};"
        f'ALTER DATABASE "{shop.name}" CONNECTION LIMIT 3'
    )
    try:
        dsn = make_dsn(shop.dsn, user=role)
        assert found(shop, {"tables": ["orders"], "parallel": 2}, dsn=dsn) == [
            (Severity.WARNING, f"database {shop.name} has 3 free connections, and a snapshot needs 4")
        ]
        shop.execute(f'ALTER ROLE {role} CONNECTION LIMIT 3; ALTER DATABASE "{shop.name}" CONNECTION LIMIT 4')
        assert found(shop, {"tables": ["orders"], "parallel": 2}, dsn=dsn) == [
            (Severity.WARNING, f"role {role} has 3 free connections, and a snapshot needs 4")
        ]
        assert found(shop, {"tables": ["orders"], "parallel": 1}, dsn=dsn) == []
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
