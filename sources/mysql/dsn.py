"""A server's address and account as an URL, in the words of MySQL's own clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_PORT = 3306

_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_PARAMETERS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key")
_SHAPE = "write mysql://user:password@host:3306/, with %40 for @ and %2F for / in user and password"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, as whom, and how TLS is used. ssl_mode: as --ssl-mode of the client `mysql`."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ssl_mode: str
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def list_tls_files(self) -> dict[str, str | None]:
        """Parameter -> the file that it names, of those that a session makes use of."""
        if self.ssl_mode == "DISABLED" or (self.ssl_mode == "PREFERRED" and self.ssl_cert is None):
            return {}
        own = {"ssl-cert": self.ssl_cert, "ssl-key": self.ssl_key} if self.ssl_cert is not None else {}
        return {"ssl-ca": self.ssl_ca, **own}

    def make_tls_arguments(self) -> dict[str, Any]:
        """What PyMySQL's connect takes. OSError and ssl.SSLError when a file cannot be used."""
        if self.ssl_mode == "DISABLED":
            return {"ssl_disabled": True}
        if self.ssl_mode == "PREFERRED" and self.ssl_cert is None:
            return {}
        context = ssl.create_default_context(cafile=self.ssl_ca)
        # The certificates that MySQL makes for itself lack what this flag asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_REQUIRED if self.ssl_mode.startswith("VERIFY") else ssl.CERT_NONE
        if self.ssl_cert is not None:
            context.load_cert_chain(self.ssl_cert, self.ssl_key)
        return {"ssl": context}


def parse_dsn(dsn: str) -> Address:
    """ValueError, without a word of the dsn, when it is not one."""
    try:
        url = urlsplit(dsn)
        host, port = url.hostname, url.port or DEFAULT_PORT
        given = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError:
        raise ValueError(f"is not an URL: {_SHAPE}") from None
    if url.scheme not in ("mysql", "mariadb") or not host or url.username is None or url.fragment:
        raise ValueError(f"is not the URL of a server: {_SHAPE}")
    if url.path not in ("", "/"):
        raise ValueError("names a database: a binary log is of the whole server; choose with `tables`")
    if unknown := sorted(given.keys() - set(_PARAMETERS)):
        raise ValueError(f"has the unknown parameter {unknown[0]}: there are {', '.join(_PARAMETERS)}")
    mode = given.get("ssl-mode", "VERIFY_CA" if "ssl-ca" in given else "PREFERRED").upper()
    if mode not in _MODES:
        raise ValueError(f"has an unknown ssl-mode: it is one of {', '.join(_MODES)}")
    return Address(
        host,
        port,
        unquote(url.username),
        unquote(url.password or ""),
        mode,
        given.get("ssl-ca"),
        given.get("ssl-cert"),
        given.get("ssl-key"),
    )
