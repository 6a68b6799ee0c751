"""Who may change something over HTTP: whoever knows the token; without a token, whoever is no web page."""

from __future__ import annotations

import hmac

from fastapi import Request, Response

from psql_streamer.api.answers import answer_problem
from psql_streamer.shown_commands import show_command


class Permission:
    """token: the key httpToken; None where nobody needs one."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def refuse(self, request: Request) -> Response | None:
        """The answer to somebody who may not; None to others."""
        if self._token is not None:
            return None if self._knows_token(request, self._token) else _answer_unauthorized(request)
        if "origin" in request.headers:
            # Browsers send it with every POST and DELETE (Fetch standard, "origin header"). One that names this very
            # address proves nothing: a name server may give a foreign page's name the address of this machine.
            command = show_command("snapshot", "start")
            what = f"requests of web pages change nothing here: use {command} or curl, or set httpToken"
            return answer_problem(request, 403, what)
        return None

    @staticmethod
    def _knows_token(request: Request, token: str) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Bytes, because compare_digest takes no text beyond ASCII; headers are Latin-1.
        same = hmac.compare_digest(given.strip(" ").encode("latin-1", "replace"), token.encode())
        return same and scheme.lower() == "bearer"


def _answer_unauthorized(request: Request) -> Response:
    what = "this changes something and wants the header Authorization with the service's httpToken (Bearer ...)"
    return answer_problem(request, 401, what, {"WWW-Authenticate": "Bearer"})
