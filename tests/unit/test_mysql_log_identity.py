"""What a binary log shows of whether it is the one that a position was read from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psql_streamer.errors import PositionRefused
from sources.mysql.gtid_sets import DomainPositions
from sources.mysql.log_identity import LogFinding, compare_log
from sources.mysql.places import Place
from sources.mysql.positions import BinlogPosition
from sources.mysql.resuming import resolve_resume_position

SERVER, BEGUN, OTHERS = "db:3306/1", 1_700_000_000, 1_700_000_100
FILES = [("binlog.000003", 900), ("binlog.000004", 500)]


def asking(mariadb: bool = True, executed: str = "0-1-9", files: Any = FILES) -> Any:
    """What a server answers. A GTID of MariaDB's whose server is 1 is its own."""
    return SimpleNamespace(
        is_mariadb=mariadb,
        uuid="" if mariadb else SERVER,
        product="MariaDB" if mariadb else "MySQL",
        settings={"server_id": "1"},
        read_rows=lambda _: [("db", 3306, 1)],
        list_files=lambda: files,
        read_executed=lambda: DomainPositions.parse(executed),
        read_purged=DomainPositions,
        is_replica=lambda: False,
    )


def stored(file: str, offset: int = 400, begun: int = BEGUN, executed: str = "0-1-5") -> BinlogPosition:
    return BinlogPosition(executed, Place(file, offset), SERVER, begun=begun)


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (stored("binlog.000003"), LogFinding(same=True)),
        (stored("binlog.000003", begun=0), LogFinding()),
        (stored("binlog.000002"), LogFinding()),
        (stored("", 4), LogFinding()),
    ],
    ids=["there", "of an earlier version", "removed", "an operator's"],
)
def test_what_is_not_known_to_be_another_log_is_none(position: BinlogPosition, found: LogFinding) -> None:
    assert compare_log(position, asking(), lambda _: BEGUN) == found


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (stored("binlog.000003", begun=OTHERS), "was begun at 2023-11-14 22:13:20 UTC and not at 2023-11-14 22:15:00"),
        (stored("binlog.000003", 901), "has 900 bytes and had 901"),
        (stored("binlog.000005"), "has no file binlog.000005"),
        (stored("other.000001"), "has no file other.000001"),
    ],
    ids=["begun anew", "shorter", "not yet there", "another name"],
)
def test_another_log_is_told_by_what_shows_it(position: BinlogPosition, told: str) -> None:
    assert told in compare_log(position, asking(), lambda _: BEGUN).change


def test_mysql_keeps_its_gtids_where_the_log_gets_another_name() -> None:
    assert compare_log(stored("other.000009"), asking(mariadb=False), lambda _: BEGUN) == LogFinding()


def test_at_another_server_and_for_gtids_of_others_the_file_does_not_count() -> None:
    def resolve(position: BinlogPosition) -> BinlogPosition:
        return resolve_resume_position("shop", position.position, asking(), lambda _: OTHERS, "")

    with pytest.raises(PositionRefused, match="not the one that the stored position 0-1-5 was read from"):
        resolve(stored("binlog.000003"))
    assert resolve(stored("binlog.000003", executed="0-2-5")).executed == "0-2-5"
    elsewhere = BinlogPosition("0-1-5", Place("binlog.000003", 400), "db2:3306/2", begun=BEGUN)
    assert resolve(elsewhere) == BinlogPosition("0-1-5", Place("", 4), SERVER)


def test_a_domain_that_mariadb_has_deleted_is_left_out_where_the_file_shows_that_nothing_of_it_is_missing() -> None:
    def resolve(position: BinlogPosition) -> BinlogPosition:
        return resolve_resume_position("shop", position.position, asking(), lambda _: BEGUN, "")

    assert resolve(stored("binlog.000003", executed="0-1-5,7-1-3")).executed == "0-1-5"
    for position in (stored("binlog.000002", executed="0-1-5,7-1-3"), stored("", executed="0-1-5,7-1-3")):
        with pytest.raises(PositionRefused, match=r"does not list domain 7 .* DELETE_DOMAIN_ID") as refused:
            resolve(position)
        assert "set positionOverride to 0-1-5;" in refused.value.remedy
    with pytest.raises(PositionRefused, match="1 transactions that were delivered are not in the binary log"):
        resolve(stored("binlog.000003", executed="0-1-10"))
