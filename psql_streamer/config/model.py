"""What `load` gives: frozen, validated, with classes in place of names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field

from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Handler, Sink, Source
from psql_streamer.nearest import suggest_nearest
from psql_streamer.options import (
    Duration,
    HandlerOptions,
    PartOptions,
    PositiveByteSize,
    PositiveDuration,
    SinkOptions,
    SourceOptions,
)

AnyPart = TypeVar("AnyPart", Source, Handler, Sink)
Options = TypeVar("Options", bound=PartOptions)

# What a header can hold (RFC 9110, 5.5), without the blanks that end a token there.
_TOKEN = re.compile(r"[!-~]+")


class LogLevel(StrEnum):
    """The least severe level whose messages are shown."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class LogFormat(StrEnum):
    """Lines for people, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"


class LogOptions(PartOptions):
    """`[log]`."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where the HTTP API listens; an empty host is every interface, port 0 a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _parse_http_address(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError('is not an address such as "127.0.0.1:8080" or ":8080"')
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    has_blanks = any(letter.isspace() for letter in host)
    if not colon or not (port.isascii() and port.isdigit()) or (":" in host and not bracketed) or has_blanks:
        raise ValueError('is not an address such as "127.0.0.1:8080", ":8080" or "[::1]:8080"')
    if host == "*":
        raise ValueError(f'is not an address: every interface is ":{port}"')
    if int(port) > 65535:
        raise ValueError("is not an address: ports end at 65535")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("is not an address: a part of the host's name is empty or too long") from None
    return HttpAddress(host[1:-1] if bracketed else host, int(port))


def _check_http_token(value: Any) -> Any:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError("must be one or more visible ASCII characters, without blanks")
    return value


class ServiceOptions(PartOptions):
    """The keys at the top of the file."""

    http: Annotated[HttpAddress, BeforeValidator(_parse_http_address)]
    http_token: Annotated[str | None, BeforeValidator(_check_http_token), Field(repr=False)] = None
    ticker_interval: Annotated[Duration, Field(ge=0)] = 0.0
    lmdb: Annotated[str, Field(min_length=1)]
    lmdb_map_size: Annotated[PositiveByteSize, Field(ge=1 << 20, le=1 << 44)] = 256 << 20
    metric_tables: Annotated[int, Field(ge=0, le=10_000_000)] = 2000
    drain_timeout: PositiveDuration = 25.0
    start_timeout: PositiveDuration = 30.0
    log: LogOptions = LogOptions()


@dataclass(frozen=True, slots=True)
class Part(Generic[AnyPart, Options]):
    """One section: a class, and its options, which hold secrets and so have no part in the repr."""

    name: str
    cls: type[AnyPart]
    options: Options = field(repr=False)

    def build(self) -> AnyPart:
        """The part itself. Does no I/O."""
        return self.cls(self.name, self.options)  # type: ignore[arg-type]  # options is an instance of cls.Options


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that can be used.

    name: what messages call it: the file's path as it was given, or `environment`.
    ticker_interval, drain_timeout, start_timeout: seconds; a ticker_interval of 0 is off. lmdb_map_size: bytes.
    metric_tables: how many tables have metrics of their own.
    http_token: what requests that change something must know; None where anybody may ask.
    sources, sinks: by name, in the file's order. handlers: by name, those that a sink asks for (never passthrough).
    warnings: settings that do not do what one may expect of them. allows_circles: whether a sink may write what its
    source reads, as the Go service lets it.
    """

    name: str
    http: HttpAddress
    ticker_interval: float
    lmdb: Path
    lmdb_map_size: int
    metric_tables: int
    drain_timeout: float
    start_timeout: float
    log: LogOptions
    sources: Mapping[str, Part[Source, SourceOptions]]
    handlers: Mapping[str, Part[Handler, HandlerOptions]]
    sinks: Mapping[str, Part[Sink, SinkOptions]]
    warnings: tuple[str, ...] = ()
    allows_circles: bool = False
    http_token: str | None = field(default=None, repr=False)

    def require_source(self, name: str) -> None:
        """ConfigError when there is no source of this name."""
        if name not in self.sources:
            raise ConfigError([f'{self.name}: there is no source "{name}"{suggest_nearest(name, self.sources)}'])

    def list_handler_names(self, sink: str) -> tuple[str, ...]:
        """The handlers that a batch passes on its way to this sink, in order; passthrough is none."""
        return tuple(name for name in self.sinks[sink].options.handlers if name in self.handlers)

    def build_handlers(self, sink: str) -> list[Handler]:
        """The same as parts of their own, which know the sink. Does no I/O."""
        handlers = [self.handlers[name].build() for name in self.list_handler_names(sink)]
        for handler in handlers:
            handler.serve(sink, self.sinks[sink].options.sources)
        return handlers
