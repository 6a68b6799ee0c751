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
    """The registry does not have it. A server that is behind the others may have it a moment later."""


class NotOfSchemaError(Exception):
    """Bytes that are not of their schema. The text says why, and has no values."""
