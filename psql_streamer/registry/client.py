"""Questions to a schema registry over HTTP. It speaks the protocol of Confluent's, as most others do, too."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult

from psql_streamer.registry.connection import AnswerTooLargeError, Question, RegistryConnection
from psql_streamer.registry.errors import (
    DeclinedError,
    MissingSchemaError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaError,
)
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.quoting import quote_words

_MISSING = range(40400, 40500)
"""Error codes that registries give with the status 404. A proxy, or a registry at another path, gives none."""

_DECLINING = (409, 422)
"""With these a registry says what it has against what is posted to it."""

_LEADING = (301, 302, 303, 307, 308)
"""Redirects. They are not followed: login and schemas go to no server that the configuration does not name."""

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

NO_USABLE_ANSWER = "no usable answer from the schema registry"
LOOK_AT_URL = "look at url, whether the registry runs there, and what it or a proxy in front of it logs"
_LOG_IN = "look at user and password, or token, and at what the registry lets this user read"


class UnusableAnswerError(Exception):
    """One server gave no answer, or none that is of use, and another one may. The text says why, and has no values."""


Require = Callable[[Mapping[str, Any]], None]
"""Raises UnusableAnswerError for an answer that is of no use: another server is asked then."""


def accept_any(_: Mapping[str, Any]) -> None:
    """Every object is of use."""


class RegistryClient:
    """Asks the servers in turns, beginning with the one that answered last. For one thread.

    Its connection stays open as long as the client is there. answers: how many there were. last_answered: the URL of
    the server that gave the last one that was of use.
    """

    def __init__(self, options: RegistryOptions) -> None:
        self.answers = 0
        self.last_answered = ""
        self._interrupted = False
        self._options = options
        self._addresses = list(options.addresses)
        self._headers = _make_headers(options)
        tls = _make_tls_context(options) if any(url.scheme == "https" for url in options.addresses) else None
        self._connection = RegistryConnection(options.timeout, tls)
        weakref.finalize(self, self._connection.close)

    def get(self, path: str) -> Mapping[str, Any]:
        """The object that the registry has at a path. Raises RegistryError, or MissingSchemaError if no server that
        answers has one there.
        """
        return self._ask_in_turns(path, None, accept_any)

    def post(self, path: str, content: Mapping[str, Any], require: Require = accept_any) -> Mapping[str, Any]:
        """The object that the registry answers to this one. Raises as `get` does, and DeclinedError."""
        return self._ask_in_turns(path, json.dumps(content).encode(), require)

    def interrupt(self) -> None:
        """Make what is being asked, and all that is asked later, raise RegistryUnavailable. From any thread."""
        self._interrupted = True
        self._connection.interrupt()

    def _ask_in_turns(self, path: str, content: bytes | None, require: Require) -> Mapping[str, Any]:
        problems = []
        missing = None
        for address in list(self._addresses):
            self._require_uninterrupted()
            try:
                found = self._ask(address, path, content)
                if not isinstance(found, dict):
                    raise UnusableAnswerError("its answer is no JSON object")
                require(found)
            except UnusableAnswerError as problem:
                problems.append(f"{address.geturl()}: {problem}")
                self._addresses.remove(address)
                self._addresses.append(address)
            except MissingSchemaError as error:  # this server may be behind the others
                missing = error
            else:
                self.last_answered = address.geturl()
                return found
        self._require_uninterrupted()
        if missing is not None:
            raise missing
        raise RegistryUnavailable(f"{NO_USABLE_ANSWER} {'; '.join(problems)}", LOOK_AT_URL)

    def _require_uninterrupted(self) -> None:
        if self._interrupted:
            raise RegistryUnavailable(
                "the schema registry is not asked any more", "nothing to do: a stop was asked for"
            )

    def find_problems(self) -> Sequence[str]:
        """What is wrong with each of the servers. Raises RegistryRefused."""
        problems = []
        for address in self._addresses:
            try:
                self._ask(address, "/schemas/types")
            except UnusableAnswerError as problem:
                problems.append(f"{address.geturl()}: {problem}")
            except SchemaError as error:
                problems.append(f"{address.geturl()}: {error}")
        return problems

    def _ask(self, address: SplitResult, path: str, content: bytes | None = None) -> Any:
        status, body = self._exchange(address, path, content)
        if status in (401, 403):
            raise RegistryRefused(f"the schema registry {address.geturl()} refuses this client ({status})", _LOG_IN)
        declines = content is not None and status in _DECLINING
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if status not in (200, 404) and not declines:
            words = found.get("message") if isinstance(found, dict) else None
            leads = ", which leads to another URL" if status in _LEADING else ""
            raise UnusableAnswerError(f"it answers with the status {status}{leads}{quote_words(words, self._options)}")
        code = found.get("error_code") if isinstance(found, dict) else None
        if status == 404:
            if not isinstance(code, int) or code not in _MISSING:
                raise UnusableAnswerError("it has nothing at this path (status 404), so it may be no schema registry")
            self.answers += 1
            raise MissingSchemaError(address.geturl(), code)
        if declines:
            if not isinstance(found, dict):
                raise UnusableAnswerError(f"it answers with the status {status}, and does not say why")
            self.answers += 1
            raise DeclinedError(address.geturl(), status, code, found.get("message"))
        if found is None:
            raise UnusableAnswerError("its answer is no JSON")
        self.answers += 1
        return found

    def _exchange(self, address: SplitResult, path: str, content: bytes | None) -> tuple[int, bytes]:
        method, more = ("GET", {}) if content is None else ("POST", {"Content-Type": CONTENT_TYPE})
        try:
            return self._connection.ask(address, Question(method, path, content, self._headers | more))
        except (OSError, http.client.HTTPException) as error:
            raise UnusableAnswerError(_describe_error(error)) from None
        except AnswerTooLargeError as error:
            raise UnusableAnswerError(str(error)) from None


def _make_headers(options: RegistryOptions) -> dict[str, str]:
    headers = {
        "Accept": f"{CONTENT_TYPE}, application/json",
        "User-Agent": "psql-streamer",
    }
    token = options.token.get_secret_value()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif options.user:
        login = f"{options.user}:{options.password.get_secret_value()}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers


def _make_tls_context(options: RegistryOptions) -> ssl.SSLContext:
    file = options.ca
    try:
        context = ssl.create_default_context(cafile=options.ca or None)
        if options.certificate:
            file = f"{options.certificate} or {options.key}" if options.key else options.certificate
            # A key with a password would otherwise ask for it on the terminal.
            context.load_cert_chain(options.certificate, options.key or None, password="")
    except (OSError, ValueError) as error:
        raise RegistryRefused(
            f"the file {file} cannot be used for TLS with the schema registry ({_describe_error(error)})",
            "look at ca, certificate and key: files in the form PEM, and a key without a password",
        ) from None
    return context


def _describe_error(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or 'the handshake failed'}"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed the connection before it answered"
    if isinstance(error, http.client.IncompleteRead):
        return "its answer ends too early"
    if isinstance(error, http.client.HTTPException):
        return "its answer is no HTTP"
    return getattr(error, "strerror", None) or type(error).__name__
