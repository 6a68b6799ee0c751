"""Where to look when no broker answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from sinks.kafka import errors as sink_errors
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
