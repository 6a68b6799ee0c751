"""A schema registry behind TLS: its certificate is checked, and the client shows its own."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import RegistryRefused, RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from tests.certificates import Certificate
from tests.registry_server import RegistryServer, registry_server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    folder = tmp_path_factory.mktemp("certificates")
    return {name: Certificate(folder, name) for name in ("server", "client")}


@pytest.fixture
def server(certificates: dict[str, Certificate]) -> Iterator[RegistryServer]:
    """One that wants to see the client's certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates["server"].certificate, certificates["server"].key)
    tls.load_verify_locations(certificates["client"].certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    with registry_server(tls=tls) as running:
        yield running


def client(server: RegistryServer, **files: Path) -> RegistryClient:
    given = {name: str(path) for name, path in files.items()}
    return RegistryClient(RegistryOptions.model_validate({"url": server.url, "timeout": "5s"} | given))


def test_with_both_certificates_there_is_an_answer(
    server: RegistryServer, certificates: dict[str, Certificate]
) -> None:
    server.add(1, '"long"')
    own = certificates["client"]
    found = client(server, ca=certificates["server"].certificate, certificate=own.certificate, key=own.key)
    assert found.get("/schemas/ids/1") == {"schema": '"long"'}


@pytest.mark.parametrize(("hangs_up", "connections"), [(False, 1), (True, 3)])
def test_questions_that_follow_each_other_shake_hands_once_unless_the_server_hangs_up(
    server: RegistryServer, certificates: dict[str, Certificate], hangs_up: bool, connections: int
) -> None:
    server.hangs_up = hangs_up
    server.add(1, '"long"')
    own = certificates["client"]
    asking = client(server, ca=certificates["server"].certificate, certificate=own.certificate, key=own.key)
    assert [asking.get("/schemas/ids/1") for _ in range(3)] == [{"schema": '"long"'}] * 3
    assert (len(server.asked), server.connections) == (3, connections)


def test_a_server_that_nobody_trusts_gets_no_question(
    server: RegistryServer, certificates: dict[str, Certificate]
) -> None:
    own = certificates["client"]
    with pytest.raises(RegistryUnavailable, match="TLS: self-signed certificate"):
        client(server, certificate=own.certificate, key=own.key).get("/schemas/ids/1")
    assert server.asked == []


def test_a_client_without_a_certificate_gets_no_answer(
    server: RegistryServer, certificates: dict[str, Certificate]
) -> None:
    with pytest.raises(RegistryUnavailable, match="no usable answer from the schema registry"):
        client(server, ca=certificates["server"].certificate).get("/schemas/ids/1")
    assert server.asked == []


def test_a_key_of_another_certificate_is_refused(server: RegistryServer, certificates: dict[str, Certificate]) -> None:
    with pytest.raises(RegistryRefused, match="look at ca, certificate and key"):
        client(server, certificate=certificates["client"].certificate, key=certificates["server"].key)
