"""Where to look when no broker answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sinks.kafka import errors as sink_errors
from sinks.kafka.administrator import Administrator
from sinks.kafka.connection_errors import explain_silence
from sinks.kafka.delivery import Delivery
from sources.kafka import errors as source_errors

Find = Callable[[KafkaError], str]

_UNTRUSTED = "ssl://127.0.0.1:9093/bootstrap: error:0A000086:SSL routines::certificate verify failed"
_NOT_TLS = "ssl://127.0.0.1:9092/bootstrap: error:0A00010B:SSL routines::wrong version number"


@pytest.mark.parametrize("find_remedy", [sink_errors.find_remedy, source_errors.find_remedy])
@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_a_failed_handshake_names_the_tls_properties_whatever_its_code(find_remedy: Find, code: int) -> None:
    assert find_remedy(KafkaError(code, _UNTRUSTED)).startswith("check ssl.ca.location")
    assert find_remedy(KafkaError(code, _NOT_TLS)) == "check security.protocol and the ssl.* properties"


@pytest.mark.parametrize("find_remedy", [sink_errors.find_remedy, source_errors.find_remedy])
def test_a_refused_connection_names_hosts_and_the_network(find_remedy: Find) -> None:
    refused = KafkaError(KafkaError._TRANSPORT, "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed")
    assert find_remedy(refused) == "check hosts, the network and the security.* properties"


def test_that_no_broker_is_left_names_the_hosts_of_the_configuration_and_keeps_its_code() -> None:
    said = explain_silence(KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down"), ["a:1", "b:2"])
    assert said.str() == "no broker answers (a:1, b:2), and the client goes on trying"
    assert said.code() == KafkaError._ALL_BROKERS_DOWN


def test_any_other_error_says_what_the_client_says() -> None:
    refused = KafkaError(KafkaError._TRANSPORT, "a:1/bootstrap: Connection refused")
    assert explain_silence(refused, ["a:1"]) is refused


def test_a_sink_whose_brokers_are_all_away_gives_and_logs_its_hosts_as_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivery = Delivery({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"}, 1.0, logging.getLogger(__name__))
    try:
        delivery._complaints.add(KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down"))
        reason = delivery._complaints.reason
    finally:
        delivery.close()
    assert reason is not None
    assert str(sink_errors.make_sink_error("5 records were not acknowledged", reason)) == (
        "5 records were not acknowledged: no broker answers (127.0.0.1:1, 127.0.0.1:2), and the client goes on trying: "
        "check hosts, the network and the security.* properties"
    )
    assert "no broker answers (127.0.0.1:1, 127.0.0.1:2)" in caplog.text
    assert "brokers are down" not in caplog.text


_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")
_REFUSED = KafkaError(KafkaError._TRANSPORT, "a:1/bootstrap: Connection refused")
_LOGIN = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "wrong password")


@pytest.mark.parametrize(
    ("complaints", "answer", "told"),
    [
        ([_DOWN, _REFUSED], _DOWN, _REFUSED.str()),
        ([_DOWN], _REFUSED, _REFUSED.str()),
        ([_DOWN, _REFUSED, _LOGIN], _DOWN, _LOGIN.str()),
        ([_DOWN], _DOWN, "no broker answers (a:1, b:2), and the client goes on trying"),
    ],
)
def test_a_check_of_brokers_that_are_away_never_gives_how_many_librdkafka_counts(
    complaints: list[KafkaError], answer: KafkaError, told: str
) -> None:
    class Away:
        def list_topics(self, **_: object) -> None:
            raise KafkaException(answer)

        def poll(self, _: float) -> None:
            administrator._complaints.extend(complaints)

    administrator = Administrator(["a:1", "b:2"], {"bootstrap.servers": "127.0.0.1:1"}, 1.0, sink_errors.REFUSED)
    administrator.client = cast("AdminClient", Away())
    with pytest.raises(KafkaException) as raised:
        administrator.list_topics()
    assert raised.value.args[0].str() == told
