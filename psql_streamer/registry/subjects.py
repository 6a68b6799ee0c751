"""Schemas under subjects of a registry: each is registered, or looked up, once."""

from __future__ import annotations

from psql_streamer.registry.options import RegistryOptions


class Subjects:
    """Ids of schemas under subjects. Each is asked for once. For one thread.

    registers: whether schemas that the registry does not have are registered there.
    """

    def __init__(self, options: RegistryOptions, registers: bool) -> None:
        """No I/O."""
        self._options = options
        self._registers = registers

    def find_id(self, subject: str, schema: str) -> int:
        """The id of a schema of Avro, which is JSON. Raises RegistryUnavailable and RegistryRefused."""
        raise NotImplementedError
