"""What goes wrong between a record, its registry and its schema."""

from __future__ import annotations


class RegistryError(Exception):
    """The registry does not say what a schema is. remedy: what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


class RegistryUnavailable(RegistryError):
    """It cannot be reached, or fails in a way that may pass."""


class RegistryRefused(RegistryError):
    """It answered, and will answer the same until somebody changes something."""


class SchemaError(Exception):
    """The registry does not have a schema, or nothing can be read by it. The text says why, and has no values."""


class MissingSchemaError(SchemaError):
    """The registry does not have it. A server that is behind the others may have it a moment later.

    where: the URL of the server that says so. code: its error code.
    """

    def __init__(self, where: str, code: int) -> None:
        super().__init__(f"the registry does not have it ({code})")
        self.where = where
        self.code = code


class DeclinedError(Exception):
    """A server has understood what it is to do, and does not do it.

    where: the URL of the server. status: of HTTP. code: the server's own, if it has one. words: what the server says of
    it, as that came.
    """

    def __init__(self, where: str, status: int, code: object, words: object) -> None:
        super().__init__(where, status, code)
        self.where = where
        self.status = status
        self.code = code
        self.words = words


class NotOfSchemaError(Exception):
    """Bytes that are not of their schema. The text says why, and has no values."""
