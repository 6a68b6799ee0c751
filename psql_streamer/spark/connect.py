"""A session on a Spark Connect server."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.spark.addresses import Line, parse_addresses
from psql_streamer.spark.shipping import Shipment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""What tells pyspark.sql.functions, which a rule's function uses, that there is no JVM here."""

_AWAY = ("the Spark Connect server of [spark] remote does not answer", "start it, or correct the address")

_CONNECT_ATTEMPTS = 5
"""Attempts of every call, with pauses of 50 ms to 5 s: some 10 seconds. By default the client tries for 10 minutes, in
which nobody would hear what is wrong; whoever calls the handler tries again."""


@contextmanager
def connect_mode(on: bool) -> Iterator[None]:
    """Have modules that are imported meanwhile make their functions for a server, if on, without one."""
    if not on or _CONNECT_MODE in os.environ:
        yield
        return
    os.environ[_CONNECT_MODE] = "1"
    try:
        yield
    finally:
        del os.environ[_CONNECT_MODE]


def is_of_a_server(spark: SparkSession) -> bool:
    """Whether a session is one of a Spark Connect server, and not of an engine of this process."""
    return not hasattr(spark, "_jsparkSession")


def connect(url: str, conf: Mapping[str, str]) -> SparkSession:
    """A new session. HandlerUnavailable: the server does not answer. HandlerRefused: the client is not installed."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise HandlerRefused(
            f"[spark] remote needs a package that is not installed ({error})", "pip install 'pyspark[connect]'"
        ) from None
    line = Line(parse_addresses(url))
    if not line.holds():
        raise HandlerUnavailable(*_AWAY)
    line.close()
    try:
        # What it says when it gives up is said by the error.
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
        # Nothing is sent before the policy is set.
        session: Any = RemoteSession.builder.remote(url).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_ATTEMPTS, max_backoff=5000)])
        session.conf._set_all(configs={"spark.sql.session.timeZone": "UTC", **conf}, silent=True)
    except Exception as error:
        raise HandlerUnavailable(f"{_AWAY[0]} ({type(error).__name__})", _AWAY[1]) from None
    os.environ[_CONNECT_MODE] = "1"
    remote: SparkSession = session
    return remote


def ship(session: SparkSession, shipment: Shipment) -> None:
    """Hand files to the server. HandlerUnavailable: it does not take them."""
    try:
        shipment.to_server(session)
    except Exception as error:
        raise HandlerUnavailable(
            f"the Spark Connect server did not take what rules need ({type(error).__name__})", "it is tried again"
        ) from None


def clone_session(session: SparkSession) -> SparkSession:
    """Another session with the settings, the views and the files that this one has now."""
    remote: Any = session
    made: SparkSession = remote.cloneSession()
    return made


def disconnect(session: SparkSession, answers: bool) -> None:
    """Let a session go. answers: whether the server is there to be told."""
    os.environ.pop(_CONNECT_MODE, None)
    remote: Any = session
    with suppress(Exception):
        remote.release_session_on_close = answers
        remote.stop()
