"""The types of one database that are not built in, as its catalog describes them. Pure: the source asks the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID, EXTENSIONS

_BASE, _DOMAIN, _COMPOSITE = "b", "d", "c"


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of pg_type, and for a composite type its rows of pg_attribute (name, atttypid, atttypmod) in order.

    kind: typtype. element_oid: of a true array type, else 0. base_oid, base_typmod: of a domain. labels: of an enum, in
    its order.
    """

    oid: int
    name: str
    kind: str
    array_oid: int
    element_oid: int
    delimiter: str
    base_oid: int
    base_typmod: int
    attributes: tuple[tuple[str, int, int], ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def component_oids(self) -> set[int]:
        """The types that it is made of."""
        oids = {self.element_oid, self.base_oid, *(oid for _, oid, _ in self.attributes)}
        return oids - {0}


class TypeCatalog:
    """oid -> PgType. The first description of an OID stays: rows in the WAL may be older than what the catalog says."""

    def __init__(self, rows: Iterable[TypeRow] = ()) -> None:
        self._rows: dict[int, TypeRow] = {}
        self._types: dict[int, PgType] = {}
        self.add(rows)

    def add(self, rows: Iterable[TypeRow]) -> None:
        """Take descriptions of types that have none yet."""
        for row in rows:
            self._rows.setdefault(row.oid, row)

    def find_missing(self, oid: int) -> set[int]:
        """Which rows are needed before `resolve` can tell all of a type: its own, or those of its components."""
        wanted, missing, seen = {oid}, set[int](), set[int]()
        while wanted:
            one = wanted.pop()
            seen.add(one)
            if one in self._rows:
                wanted |= self._rows[one].component_oids - seen
            elif one not in BY_OID:
                missing.add(one)
        return missing

    def resolve(self, oid: int) -> PgType | None:
        """The type; None for one that nothing is known of. A component that nothing is known of is text."""
        if oid in BY_OID:
            return BY_OID[oid]
        if oid in self._rows and oid not in self._types:
            self._types[oid] = self._build(self._rows[oid])
        return self._types.get(oid)

    def _build(self, row: TypeRow) -> PgType:
        if row.kind == _DOMAIN:
            return self._build_domain(row)
        kind = PgType(row.name, row.oid, row.array_oid, JsonForm.TEXT, row.delimiter)
        if row.element_oid:
            return replace(kind, form=JsonForm.ARRAY, element=self._resolve_component(row.element_oid))
        if row.kind == _COMPOSITE:
            attributes = tuple(
                Attribute(name, self._resolve_component(oid), typmod) for name, oid, typmod in row.attributes
            )
            return replace(kind, form=JsonForm.OBJECT, attributes=attributes)
        if row.kind == _BASE:
            return replace(kind, logical=EXTENSIONS.get(row.name, Logical.OTHER))
        # Enums, ranges and multiranges.
        return replace(kind, labels=row.labels)

    def _build_domain(self, row: TypeRow) -> PgType:
        base = self._resolve_component(row.base_oid)
        return replace(
            base,
            name=row.name,
            oid=row.oid,
            array_oid=row.array_oid,
            base_oid=base.base_oid or base.oid,
            base_typmod=base.base_typmod if row.base_typmod < 0 else row.base_typmod,
        )

    def _resolve_component(self, oid: int) -> PgType:
        return self.resolve(oid) or PgType("", oid, 0, JsonForm.TEXT)
