"""The block `registry` of a section: where a schema registry is, and how to log in there."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from psql_streamer.named_files import find_unreadable
from psql_streamer.options import PartOptions, PositiveDuration, refuse_longer_than


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _is_url(text: str) -> str:
    """Messages show nothing of it: it may hold a password."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        (url.hostname or "").encode("idna")  # names that no resolver takes: an empty part, or one that is too long
    except ValueError:
        is_url = False
    if not is_url or any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("is not the URL of a registry: write https://host:port or https://host:port/path")
    if "@" in url.netloc:
        raise ValueError("has a user or a password in the URL, which is shown in logs: set user and password")
    if url.query or url.fragment:
        raise ValueError("has a ? or a #, which the URL of a registry does not have")
    if not url.netloc.isascii() or not url.path.isascii():
        raise ValueError("has characters beyond ASCII: write the host in its xn-- form, and others as %XX")
    return text.rstrip("/")


def _is_header_text(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().isprintable():
        raise ValueError("has characters that cannot be sent, such as a line break at its end")
    return value


def _is_ascii(value: SecretStr) -> SecretStr:
    """A token goes into the header as it is, a password as base64."""
    if not value.get_secret_value().isascii():
        raise ValueError("has characters that cannot be sent: tokens are ASCII")
    return value


Urls = Annotated[tuple[Annotated[str, AfterValidator(_is_url)], ...], BeforeValidator(_as_list), Field(min_length=1)]
HiddenText = Annotated[SecretStr, AfterValidator(_is_header_text)]


class RegistryOptions(PartOptions):
    """[source.NAME.registry].

    url: of the registry, or of several servers of one, which are asked one after the other. user and password, or
    token: how to log in. ca: a file with certificates of authorities in place of the system's. certificate, key: files,
    with which the client shows who it is. timeout: for an answer of one server.
    """

    url: Urls
    user: str = ""
    password: HiddenText = Field(default=SecretStr(""), repr=False)
    token: Annotated[HiddenText, AfterValidator(_is_ascii)] = Field(default=SecretStr(""), repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    timeout: Annotated[PositiveDuration, refuse_longer_than("1m", "a rebalance")] = 5.0

    @property
    def addresses(self) -> tuple[SplitResult, ...]:
        """The URLs, taken apart."""
        return tuple(map(urlsplit, self.url))

    @model_validator(mode="after")
    def _log_in_in_one_way(self) -> Self:
        has_password, has_token = bool(self.password.get_secret_value()), bool(self.token.get_secret_value())
        if has_token and (self.user or has_password):
            raise ValueError("token and user exclude each other: set the one that the registry asks for")
        if has_password and not self.user:
            raise ValueError("password has no user: set user")
        if ":" in self.user or not self.user.isprintable():
            raise ValueError("user has a colon or a control character, which HTTP does not allow there")
        return self

    @model_validator(mode="after")
    def _files_are_for_tls(self) -> Self:
        if self.key and not self.certificate:
            raise ValueError("key has no certificate: set certificate")
        if (self.ca or self.certificate) and any(url.scheme == "http" for url in self.addresses):
            raise ValueError("ca, certificate and key are for https, and a url begins with http:")
        if problems := "; ".join(find_unreadable({"ca": self.ca, "certificate": self.certificate, "key": self.key})):
            raise ValueError(problems)
        return self
