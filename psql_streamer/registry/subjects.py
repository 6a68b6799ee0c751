"""Ids of schemas under subjects of a registry, for who writes records by them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Any
from urllib.parse import quote

from psql_streamer.name_counts import escape_unprintable
from psql_streamer.registry.canonical import describe_meaning
from psql_streamer.registry.client import LOOK_AT_URL, NO_USABLE_ANSWER, RegistryClient, UnusableAnswerError
from psql_streamer.registry.declined import make_refusal
from psql_streamer.registry.errors import DeclinedError, MissingSchemaError, RegistryRefused, RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.schemas import AVRO, LARGEST_ID

_MOST_VERSIONS = 10
"""Of a subject, that are looked at for the id of keys. It is another one than the latest where several sources have one
topic, and where a key was changed and changed back.
"""

_MOMENT_SECONDS = 1.0
"""What is shorter is not told."""

_MOST_SUBJECT_SCHEMAS = 100_000
"""A table has two, and a new one for each change of it."""


class Subjects:
    """Ids of schemas under subjects. Each is asked for once. For one thread.

    registers: whether schemas that the registry does not have are registered there.
    """

    def __init__(self, options: RegistryOptions, registers: bool) -> None:
        """No I/O."""
        self._options = options
        self._registers = registers
        self._client: RegistryClient | None = None
        self._known: dict[tuple[str, bytes], int] = {}
        self._given: dict[int, tuple[str, bytes]] = {}
        self._interrupted = False
        self._asked = 0
        self._began = 0.0
        self._asks_for = ""

    def find_id(self, subject: str, schema: str, of_keys: bool = False) -> int:
        """The id of a schema of Avro, which is given as JSON. of_keys: the id stays that of the subject's newest
        version that has the same encoding and meaning. Keys have the id in their bytes: with another one a row would
        have another key.

        Raises RegistryUnavailable: the same call may succeed later; and RegistryRefused: somebody has to change
        something first.
        """
        known = self._known.get((subject, _digest(schema)))
        return self._ask(subject, schema, of_keys) if known is None else known

    def begin(self) -> None:
        """From now on `describe_wait` counts anew."""
        self._asked = 0

    def describe_wait(self) -> str:
        """What it waits for, and since when, if that is longer than a moment; "" if not. From any thread."""
        subject, seconds = self._asks_for, time.monotonic() - self._began
        if not subject or seconds < _MOMENT_SECONDS:
            return ""
        return (
            f"has asked the schema registry for {seconds:.0f} s, now for schema {self._asked} of this batch, "
            f"of the subject {escape_unprintable(subject)}"
        )

    def interrupt(self) -> None:
        """Make `find_id` raise RegistryUnavailable soon for what is not known, until `stop`. From any thread."""
        self._interrupted = True
        if self._client is not None:
            self._client.interrupt()

    def stop(self) -> None:
        """Forget the client. Ids stay known."""
        self._interrupted, self._client = False, None

    def _ask(self, subject: str, schema: str, of_keys: bool) -> int:
        if not self._asked:
            self._began = time.monotonic()
        self._asked += 1
        self._asks_for = subject
        try:
            return self._ask_registry(subject, schema, of_keys)
        finally:
            self._asks_for = ""

    def _ask_registry(self, subject: str, schema: str, of_keys: bool) -> int:
        client = self._connect()
        path = f"/subjects/{quote(subject, safe='')}"
        content = {"schema": schema, "schemaType": AVRO}
        try:
            found = _find_newest_alike(client, path, schema) if of_keys else None
            if found is None:
                found = _register(client, path, content) if self._registers else _look_up(client, path, content)
        except RegistryRefused as error:
            raise self._refuse_client(error, subject) from None
        except RegistryUnavailable as error:
            raise RegistryUnavailable(f"{error.what} (subject {escape_unprintable(subject)})", error.remedy) from None
        except MissingSchemaError as error:
            raise _refuse_missing(error, subject, path) from None
        except DeclinedError as error:
            raise make_refusal(client, self._options, error, subject, content) from None
        self._require_given_once(client, found, subject, schema)
        if len(self._known) >= _MOST_SUBJECT_SCHEMAS:
            self._known.clear()
            self._given.clear()
        self._known[subject, _digest(schema)] = found
        return found

    def _require_given_once(self, client: RegistryClient, number: int, subject: str, schema: str) -> None:
        """Servers that are not of one registry, and a registry that has lost its schemas, give an id again. Readers
        would take records of one schema for those of the other.
        """
        digest = _digest(json.dumps(describe_meaning(json.loads(schema))))
        first, known = self._given.setdefault(number, (subject, digest))
        if known != digest:
            raise RegistryRefused(
                f"the schema registry {client.last_answered} gives the id {number} to a schema of the subject "
                f"{escape_unprintable(subject)}, and the same id was that of another schema, of the subject "
                f"{escape_unprintable(first)}: readers take records of one for those of the other",
                "see whether all servers in url are of one registry, and whether it has lost schemas; behind the next "
                "start all ids are asked for anew, and a snapshot writes what cannot be read again",
            )

    def _connect(self) -> RegistryClient:
        if self._client is None:
            self._client = RegistryClient(self._options)
        if self._interrupted:
            self._client.interrupt()
        return self._client

    def _refuse_client(self, error: RegistryRefused, subject: str) -> RegistryRefused:
        remedy = error.remedy
        if self._registers:
            remedy = (
                "look at user and password, or token, and let this user register schemas in the registry; "
                "or set autoRegister = false, and have others register them"
            )
        return RegistryRefused(f"{error.what} for the subject {escape_unprintable(subject)}", remedy)


def _find_newest_alike(client: RegistryClient, path: str, schema: str) -> int | None:
    """The id of the newest version that means the same by the same bytes; None if no one of the last few is."""
    wanted = describe_meaning(json.loads(schema))
    latest = _find_version(client, path, "latest")
    older = (_find_version(client, path, str(number)) for number in _list_older(latest))
    alike = (found for found in chain((latest,), older) if _is_alike(found, wanted))
    return next((int(found["id"]) for found in alike), None)


def _find_version(client: RegistryClient, path: str, version: str) -> Mapping[str, Any]:
    """Nothing for one that is not there: versions may be deleted."""
    try:
        return client.get(f"{path}/versions/{version}")
    except MissingSchemaError:
        return {}


def _list_older(latest: Mapping[str, Any]) -> Iterable[int]:
    number = latest.get("version")
    return range(number - 1, max(0, number - _MOST_VERSIONS), -1) if type(number) is int else ()


def _is_alike(found: Mapping[str, Any], wanted: Any) -> bool:
    try:
        _require_id(found)
        return bool(describe_meaning(json.loads(found["schema"])) == wanted)
    except (UnusableAnswerError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return False


def _register(client: RegistryClient, path: str, content: Mapping[str, str]) -> int:
    try:
        return int(client.post(f"{path}/versions", content, _require_id)["id"])
    except MissingSchemaError as error:  # no registry says so of a schema that it is given
        raise RegistryUnavailable(f"{NO_USABLE_ANSWER} {error.where}: {error}", LOOK_AT_URL) from None


def _digest(schema: str) -> bytes:
    """What stands for a text of some kB."""
    return blake2b(schema.encode(), digest_size=16).digest()


def _look_up(client: RegistryClient, path: str, content: Mapping[str, str]) -> int:
    try:
        return int(client.post(path, content, _require_id)["id"])
    except MissingSchemaError as error:
        found = None if error.code == _NO_SUBJECT else _look_up_normalized(client, path, content)
        if found is None:
            raise
        return found


def _look_up_normalized(client: RegistryClient, path: str, content: Mapping[str, str]) -> int | None:
    """Apicurio Registry compares texts: it does not find a schema that was registered with other spaces in it. Asked to
    normalize schemas it does, and finds those as well that are documented otherwise; other registries may find more.
    """
    try:
        found = client.post(f"{path}?normalize=true", content, _require_id)
        is_same = json.loads(found["schema"]) == json.loads(content["schema"])
    except (MissingSchemaError, DeclinedError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return int(found["id"]) if is_same else None


def _refuse_missing(error: MissingSchemaError, subject: str, path: str) -> RegistryRefused:
    lacks = "the subject" if error.code == _NO_SUBJECT else "this schema under the subject"
    return RegistryRefused(
        f"the schema registry {error.where} does not have {lacks} {escape_unprintable(subject)} ({error.code})",
        f"register the schema (POST {error.where}{path}/versions), or set autoRegister = true",
    )


_NO_SUBJECT = 40401


def _require_id(answer: Mapping[str, Any]) -> None:
    number = answer.get("id")
    if type(number) is not int or not 0 <= number <= LARGEST_ID:
        raise UnusableAnswerError("its answer has no id of a schema")
