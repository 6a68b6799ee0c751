"""Files that a configuration names, and that cannot be read: it is told before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.registry.options import RegistryOptions
from sources.mysql.options import MysqlOptions
from sources.postgres.options import PostgresOptions

POSTGRES = {"publication": "p", "replicationSlot": "s"}


@pytest.fixture
def missing(tmp_path: Path) -> str:
    return str(tmp_path / "hunter2.pem")


def refuse(options: type[Any], **given: object) -> str:
    with pytest.raises(ValidationError) as refused:
        options.model_validate({"type": "x", **given})
    return str(refused.value.errors()[0]["msg"])


@pytest.mark.parametrize("parameter", ["ssl-ca", "ssl-cert", "ssl-key"])
def test_a_missing_file_of_a_mysql_dsn_is_named_by_its_parameter(missing: str, tmp_path: Path, parameter: str) -> None:
    there = tmp_path / "there.pem"
    there.touch()
    files = {"ssl-ca": there, "ssl-cert": there, "ssl-key": there, parameter: missing}
    dsn = "mysql://u:p@h/?" + "&".join(f"{name}={value}" for name, value in files.items())
    said = refuse(MysqlOptions, dsn=dsn)
    assert f"{parameter} names a file that cannot be read: no such file or directory" in said
    assert "hunter2" not in said


def test_a_file_that_the_ssl_mode_makes_no_use_of_may_be_missing(missing: str) -> None:
    dsn = f"mysql://u:p@h/?ssl-mode=DISABLED&ssl-ca={missing}"
    assert MysqlOptions.model_validate({"type": "mysql", "dsn": dsn}).address.ssl_ca == missing


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_a_missing_root_certificate_of_a_postgres_dsn_is_told(missing: str, mode: str) -> None:
    said = refuse(PostgresOptions, dsn=f"host=h sslmode={mode} sslrootcert={missing}", **POSTGRES)
    assert "sslrootcert names a file that cannot be read: no such file or directory" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("more", ["sslmode=verify-full sslrootcert=system", "sslmode=prefer sslrootcert=/nowhere/x"])
def test_what_libpq_does_without_a_file_of_may_be_missing(more: str) -> None:
    PostgresOptions.model_validate({"type": "postgres", "dsn": f"host=h {more}", **POSTGRES})


@pytest.mark.parametrize("option", ["ca", "certificate", "key"])
def test_a_missing_file_of_a_registry_is_named_by_its_option(missing: str, tmp_path: Path, option: str) -> None:
    there = tmp_path / "there.pem"
    there.touch()
    files = {"ca": str(there), "certificate": str(there), "key": str(there), option: missing}
    with pytest.raises(ValidationError, match=f"{option} names a file that cannot be read: no such file or directory"):
        RegistryOptions.model_validate({"url": "https://h", **files})
