"""What a registry's schemas describe, as JSON. A schema is asked for once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from psql_streamer.registry.avro import make_avro_decoder
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import (
    MissingSchemaError,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaError,
)
from psql_streamer.registry.schemas import AVRO, JSON, PROTOBUF, Schema, fetch_schema

Decode = Callable[[bytes], bytes]
"""Payload to JSON. Raises NotOfSchemaError."""

_MOST_REGISTRY_SCHEMAS = 10_000
"""Debezium has two for each table, and a new one for each change of a table. One of 20 columns takes 15 kB."""

_MISSING_SECONDS = 10.0
"""For so long a registry is not asked again for what it did not have."""

_BEHIND_SECONDS = 3.0
"""For so long records wait for a schema that the registry does not have: a server may be behind the one that a writer
has given the schema to.
"""

_HASTE_SECONDS = 60.0
"""For so long after a wait in vain there is no other one: records of anything else would hold the stream up each."""


class Decoders:
    """For one thread."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._found: dict[int | str, Decode] = {}
        self._failed: dict[int | str, tuple[float, str]] = {}
        self._missed: dict[int | str, float] = {}
        self._waited_in_vain = -_HASTE_SECONDS

    def find(self, schema: int | str, *, may_wait: bool = True) -> Decode:
        """What reads the payloads of a schema, by its id or its GUID. Raises SchemaError, and RegistryError. may_wait:
        whether that is raised for a schema, too, that the registry may have in a moment.
        """
        decode = self._found.get(schema)
        return self._make(schema, may_wait) if decode is None else decode

    def _make(self, schema: int | str, may_wait: bool) -> Decode:
        since, reason = self._failed.get(schema, (0.0, ""))
        if reason and time.monotonic() - since < _MISSING_SECONDS:
            raise SchemaError(reason)
        try:
            decode = _make_decoder(fetch_schema(self._client, schema))
        except SchemaError as error:
            if may_wait and isinstance(error, MissingSchemaError) and self._is_worth_a_wait(schema):
                what = f"the schema registry does not have schema {schema} yet"
                raise RegistryUnavailable(what, f"it is asked again for {_BEHIND_SECONDS:g} s") from None
            self._missed.pop(schema, None)
            _forget_first(self._failed)
            self._failed[schema] = time.monotonic(), str(error)
            raise
        except RegistryError:
            self._missed.pop(schema, None)  # who fails now and then may not know what it says it lacks
            raise
        self._failed.pop(schema, None)
        self._missed.pop(schema, None)
        _forget_first(self._found)
        self._found[schema] = decode
        return decode

    def _is_worth_a_wait(self, schema: int | str) -> bool:
        now = time.monotonic()
        if schema not in self._missed:
            if now - self._waited_in_vain < _HASTE_SECONDS:
                return False
            _forget_first(self._missed)
            self._missed[schema] = now
        if now - self._missed[schema] < _BEHIND_SECONDS:
            return True
        self._waited_in_vain = now
        return False


def _forget_first(known: dict[int | str, Any]) -> None:
    """Make room for one more."""
    if len(known) >= _MOST_REGISTRY_SCHEMAS:
        del known[next(iter(known))]


def _make_decoder(schema: Schema) -> Decode:
    make = _BY_KIND.get(schema.kind)
    if make is None:
        raise SchemaError(f"it is of a kind that is not known here: {schema.kind}")
    return make(schema)


def _make_avro_decoder(schema: Schema) -> Decode:
    return make_avro_decoder(schema.text, list(schema.references.values()))


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


def _make_json_decoder(_: Schema) -> Decode:
    return lambda payload: payload


_BY_KIND: Mapping[str, Callable[[Schema], Decode]] = {
    AVRO: _make_avro_decoder,
    JSON: _make_json_decoder,
    PROTOBUF: _make_protobuf_decoder,
}
