"""The option `snapshot` of a `postgres` source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, field_validator

from sources.postgres.snapshot.conditions import require_condition
from sources.snapshot import options
from sources.snapshot.conditions import require_conditions
from sources.snapshot.options import SnapshotMode, expand_mode

__all__ = ["SnapshotMode", "SnapshotOption", "SnapshotOptions"]


class SnapshotOptions(options.SnapshotOptions):
    """[source.NAME.snapshot] of a `postgres` source."""

    @field_validator("where")
    @classmethod
    def _require(cls, where: Mapping[str, str]) -> Mapping[str, str]:
        return require_conditions(where, require_condition)


SnapshotOption = Annotated[SnapshotOptions, BeforeValidator(expand_mode)]
"""A table, or its mode alone: `snapshot = "never"`."""
