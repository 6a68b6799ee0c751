"""A client of the running service's HTTP API, at the address of its configuration."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any

from psql_streamer.config import Config, HttpAddress
from psql_streamer.errors import StreamerError

_ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a listener on all of them is found
_REQUEST_SECONDS = 60.0
"""Longer than a source may take to review a snapshot."""


class ServiceAway(StreamerError):
    """Nobody answers."""


class RequestRefused(StreamerError):
    """The service answered with an error. code: HTTP's."""

    def __init__(self, code: int, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.code = code


class ServiceClient:
    """Asks one thing at a time. Every answer is an object."""

    def __init__(self, config: Config) -> None:
        if not config.http.port:
            raise StreamerError(
                f"{config.name}: http = {config.http} is a port that only the service's log tells",
                "set a port with http",
            )
        self._host = _ANYWHERE.get(config.http.host, config.http.host)
        self._port = config.http.port
        self._where = str(HttpAddress(self._host, self._port))
        self._config = config

    def get(self, path: str) -> Any:
        """What a GET gives. ServiceAway, RequestRefused; StreamerError when something else listens there."""
        return self._ask("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        """What a POST gives; errors as of get. body: for JSON."""
        return self._ask("POST", path, None if body is None else json.dumps(body).encode())

    def post_json(self, path: str, body: bytes) -> Any:
        """The same of a body that is JSON already."""
        return self._ask("POST", path, body)

    def delete(self, path: str) -> Any:
        """What a DELETE gives; errors as of get."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        code, content = self._exchange(method, path, body)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or (code >= HTTPStatus.BAD_REQUEST and "error" not in answer):
            raise StreamerError(
                f"what answers at {self._where} is no psql-streamer (HTTP {code})",
                "look what listens there, or give the service's configuration with -config",
            )
        if code == HTTPStatus.UNAUTHORIZED:
            raise self._make_unauthorized_error()
        if code >= HTTPStatus.BAD_REQUEST:
            raise RequestRefused(code, str(answer["error"]))
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        # Not urllib.request: it would go through the proxy that the environment names.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_REQUEST_SECONDS)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._config.http_token is not None:
            headers["Authorization"] = f"Bearer {self._config.http_token}"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            what = f"the service at {self._where} has not answered for {_REQUEST_SECONDS:g} s"
            raise ServiceAway(what, "look at its log, and at its server") from None
        except (OSError, http.client.HTTPException):
            raise ServiceAway(
                f"nothing answers at {self._where}",
                "start the service, or give the configuration that it runs with (-config)",
            ) from None
        finally:
            connection.close()

    def _make_unauthorized_error(self) -> RequestRefused:
        has = "has none" if self._config.http_token is None else "has another one"
        return RequestRefused(
            HTTPStatus.UNAUTHORIZED,
            f"the service at {self._where} wants its httpToken, and {self._config.name} {has}",
            "give the service's own configuration with -config",
        )
