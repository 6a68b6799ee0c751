"""What Kafka's error codes mean to whoever connects to brokers, sink or source; where to look.

https://kafka.apache.org/protocol#protocol_error_codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError

from psql_streamer.shortage import find_limit

_CONNECTION_REMEDY = "check hosts, the network and the security.* properties"
_TLS_REMEDY = "check security.protocol and the ssl.* properties"
_CERTIFICATE_REMEDY = "check ssl.ca.location, security.protocol and the ssl.* properties"

UNREACHABLE: Mapping[int, str] = {
    KafkaError._TRANSPORT: _CONNECTION_REMEDY,
    KafkaError._RESOLVE: _CONNECTION_REMEDY,
    KafkaError._ALL_BROKERS_DOWN: _CONNECTION_REMEDY,
    KafkaError._TIMED_OUT: _CONNECTION_REMEDY,
    KafkaError._SSL: _TLS_REMEDY,
}
"""Nobody answers, which may pass; where to look if it does not."""


def explain_silence(error: KafkaError, hosts: Sequence[str]) -> KafkaError:
    """The error itself; where no broker is left, one that says which. librdkafka counts them, also those that it was
    never told of, and the count is often over when it is read. hosts: of the configuration.
    """
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        return error
    return KafkaError(error.code(), f"no broker answers ({', '.join(hosts)}), and the client goes on trying")


def find_connection_remedy(error: KafkaError) -> str:
    """Where to look after an error of UNREACHABLE; empty for any other error.

    librdkafka gives _SSL for a handshake that fails, but _TRANSPORT for one that fails within its first call
    (rd_kafka_transport_ssl_connect). The words of OpenSSL are the same.
    """
    if error.code() not in UNREACHABLE:
        return ""
    said = error.str()
    if limit := find_limit(said):
        return limit
    if "certificate verify failed" in said:
        return _CERTIFICATE_REMEDY
    return _TLS_REMEDY if "SSL routines" in said else UNREACHABLE[error.code()]


def list_login_remedies(part: str) -> Mapping[int, str]:
    """Brokers do not know who connects, until somebody changes what is said. part: `sink` or `source`."""
    return {
        KafkaError._AUTHENTICATION: f"check the security.* and sasl.* properties of the {part}",
        KafkaError.SASL_AUTHENTICATION_FAILED: f"check sasl.username and sasl.password of the {part}",
        KafkaError.UNSUPPORTED_SASL_MECHANISM: f"check sasl.mechanism of the {part}",
        KafkaError.ILLEGAL_SASL_STATE: f"check security.protocol of the {part}",
    }
