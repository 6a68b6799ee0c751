"""What a registry's schemas describe, as JSON. A schema is asked for once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from psql_streamer.registry.avro import make_avro_decoder
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import RegistryRefused, SchemaError
from psql_streamer.registry.schemas import AVRO, JSON, PROTOBUF, Schema, fetch_schema

Decode = Callable[[bytes], bytes]
"""Payload to JSON. Raises NotOfSchemaError."""

_MOST_SCHEMAS = 1_000

_MISSING_SECONDS = 10.0
"""For so long a registry is not asked again for what it did not have: it may be a copy that is a little behind."""


class Decoders:
    """For one thread."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._found: dict[int | str, Decode] = {}
        self._failed: dict[int | str, tuple[float, str]] = {}

    def find(self, schema: int | str) -> Decode:
        """What reads the payloads of a schema, by its id or its GUID. Raises RegistryError, and SchemaError."""
        decode = self._found.get(schema)
        return self._make(schema) if decode is None else decode

    def _make(self, schema: int | str) -> Decode:
        since, reason = self._failed.get(schema, (0.0, ""))
        if reason and time.monotonic() - since < _MISSING_SECONDS:
            raise SchemaError(reason)
        try:
            decode = _make_decoder(fetch_schema(self._client, schema))
        except SchemaError as error:
            _forget_first(self._failed)
            self._failed[schema] = time.monotonic(), str(error)
            raise
        self._failed.pop(schema, None)
        _forget_first(self._found)
        self._found[schema] = decode
        return decode


def _forget_first(known: dict[int | str, Any]) -> None:
    """Make room for one more."""
    if len(known) >= _MOST_SCHEMAS:
        del known[next(iter(known))]


def _make_decoder(schema: Schema) -> Decode:
    match schema.kind:
        case kind if kind == AVRO:
            return make_avro_decoder(schema.text, list(schema.references.values()))
        case kind if kind == JSON:
            return _as_it_is
        case kind if kind == PROTOBUF:
            return _make_protobuf_decoder(schema)
    raise SchemaError(f"it is of a kind that is not known here: {schema.kind}")


def _make_protobuf_decoder(schema: Schema) -> Decode:
    """Its modules and packages are loaded with the first such schema."""
    try:
        from psql_streamer.registry.protobuf import make_protobuf_decoder
    except ImportError as error:
        raise RegistryRefused(
            f"records in Protobuf need a package that is not installed ({error.name})",
            "pip install protobuf grpcio-tools beside psql-streamer (the extra registry)",
        ) from None
    return make_protobuf_decoder(schema.text, schema.references)


def _as_it_is(payload: bytes) -> bytes:
    return payload
