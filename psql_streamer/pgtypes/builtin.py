"""PostgreSQL's built-in types, a row each: OIDs, what the text form becomes in JSON, what its values are, SQL's name.

Whatever else is made of a type (Arrow's and Spark's types, Debezium's schemas) goes by what its values are. The table
is the documentation's table. OIDs are fixed since they were assigned (PostgreSQL source,
src/include/catalog/pg_type.dat). Types that are made in a database are described by its catalog (see catalog.py); what
nobody knows goes out as its text form.
"""

from __future__ import annotations

from psql_streamer.pgtype import JsonForm, Logical, PgType

BUILT_IN: tuple[PgType, ...] = (
    PgType("bool", 16, 1000, JsonForm.BOOLEAN, logical=Logical.BOOLEAN, sql="boolean"),
    PgType("bytea", 17, 1001, JsonForm.BASE64, logical=Logical.BYTES),
    PgType("char", 18, 1002, JsonForm.TEXT, logical=Logical.TEXT, sql='"char"'),
    PgType("name", 19, 1003, JsonForm.TEXT, logical=Logical.TEXT),
    PgType("int8", 20, 1016, JsonForm.INTEGER, logical=Logical.INT8, sql="bigint"),
    PgType("int2", 21, 1005, JsonForm.INTEGER, logical=Logical.INT2, sql="smallint"),
    PgType("int2vector", 22, 1006, JsonForm.TEXT, logical=Logical.INT2VECTOR),
    PgType("int4", 23, 1007, JsonForm.INTEGER, logical=Logical.INT4, sql="integer"),
    PgType("regproc", 24, 1008, JsonForm.TEXT),
    PgType("text", 25, 1009, JsonForm.TEXT, logical=Logical.TEXT),
    PgType("oid", 26, 1028, JsonForm.INTEGER, logical=Logical.OID),
    PgType("tid", 27, 1010, JsonForm.TEXT),
    PgType("xid", 28, 1011, JsonForm.INTEGER, logical=Logical.XID),
    PgType("cid", 29, 1012, JsonForm.INTEGER),
    PgType("oidvector", 30, 1013, JsonForm.TEXT, logical=Logical.OIDVECTOR),
    PgType("json", 114, 199, JsonForm.EMBEDDED, logical=Logical.JSON),
    PgType("xml", 142, 143, JsonForm.TEXT, logical=Logical.XML),
    PgType("point", 600, 1017, JsonForm.TEXT, logical=Logical.POINT),
    PgType("lseg", 601, 1018, JsonForm.TEXT),
    PgType("path", 602, 1019, JsonForm.TEXT),
    PgType("box", 603, 1020, JsonForm.TEXT, ";"),
    PgType("polygon", 604, 1027, JsonForm.TEXT),
    PgType("line", 628, 629, JsonForm.TEXT),
    PgType("cidr", 650, 651, JsonForm.TEXT),
    PgType("float4", 700, 1021, JsonForm.NUMBER, logical=Logical.FLOAT4, sql="real"),
    PgType("float8", 701, 1022, JsonForm.NUMBER, logical=Logical.FLOAT8, sql="double precision"),
    PgType("circle", 718, 719, JsonForm.TEXT),
    PgType("macaddr8", 774, 775, JsonForm.TEXT),
    PgType("money", 790, 791, JsonForm.TEXT, logical=Logical.MONEY),
    PgType("macaddr", 829, 1040, JsonForm.TEXT),
    PgType("inet", 869, 1041, JsonForm.TEXT),
    PgType("bpchar", 1042, 1014, JsonForm.TEXT, logical=Logical.TEXT),
    PgType("varchar", 1043, 1015, JsonForm.TEXT, logical=Logical.TEXT, sql="character varying"),
    PgType("date", 1082, 1182, JsonForm.TEXT, logical=Logical.DATE),
    PgType("time", 1083, 1183, JsonForm.TEXT, logical=Logical.TIME, sql="time without time zone"),
    PgType("timestamp", 1114, 1115, JsonForm.TIMESTAMP, logical=Logical.TIMESTAMP, sql="timestamp without time zone"),
    PgType("timestamptz", 1184, 1185, JsonForm.TIMESTAMP_UTC, ",", Logical.TIMESTAMPTZ, "timestamp with time zone"),
    PgType("interval", 1186, 1187, JsonForm.TEXT, logical=Logical.INTERVAL),
    PgType("timetz", 1266, 1270, JsonForm.TEXT, logical=Logical.TIMETZ, sql="time with time zone"),
    PgType("bit", 1560, 1561, JsonForm.TEXT, logical=Logical.BIT),
    PgType("varbit", 1562, 1563, JsonForm.TEXT, logical=Logical.VARBIT, sql="bit varying"),
    PgType("numeric", 1700, 1231, JsonForm.NUMBER, logical=Logical.NUMERIC),
    PgType("refcursor", 1790, 2201, JsonForm.TEXT),
    PgType("regprocedure", 2202, 2207, JsonForm.TEXT),
    PgType("regoper", 2203, 2208, JsonForm.TEXT),
    PgType("regoperator", 2204, 2209, JsonForm.TEXT),
    PgType("regclass", 2205, 2210, JsonForm.TEXT),
    PgType("regtype", 2206, 2211, JsonForm.TEXT),
    PgType("uuid", 2950, 2951, JsonForm.TEXT, logical=Logical.UUID),
    PgType("txid_snapshot", 2970, 2949, JsonForm.TEXT),
    PgType("pg_lsn", 3220, 3221, JsonForm.TEXT),
    PgType("tsvector", 3614, 3643, JsonForm.TEXT, logical=Logical.TSVECTOR),
    PgType("tsquery", 3615, 3645, JsonForm.TEXT),
    PgType("regconfig", 3734, 3735, JsonForm.TEXT),
    PgType("regdictionary", 3769, 3770, JsonForm.TEXT),
    PgType("jsonb", 3802, 3807, JsonForm.EMBEDDED, logical=Logical.JSON),
    PgType("int4range", 3904, 3905, JsonForm.TEXT),
    PgType("numrange", 3906, 3907, JsonForm.TEXT),
    PgType("tsrange", 3908, 3909, JsonForm.TEXT),
    PgType("tstzrange", 3910, 3911, JsonForm.TEXT),
    PgType("daterange", 3912, 3913, JsonForm.TEXT),
    PgType("int8range", 3926, 3927, JsonForm.TEXT),
    PgType("jsonpath", 4072, 4073, JsonForm.TEXT),
    PgType("regnamespace", 4089, 4090, JsonForm.TEXT),
    PgType("regrole", 4096, 4097, JsonForm.TEXT),
    PgType("regcollation", 4191, 4192, JsonForm.TEXT),
    PgType("int4multirange", 4451, 6150, JsonForm.TEXT),
    PgType("nummultirange", 4532, 6151, JsonForm.TEXT),
    PgType("tsmultirange", 4533, 6152, JsonForm.TEXT),
    PgType("tstzmultirange", 4534, 6153, JsonForm.TEXT),
    PgType("datemultirange", 4535, 6155, JsonForm.TEXT),
    PgType("int8multirange", 4536, 6157, JsonForm.TEXT),
    PgType("pg_snapshot", 5038, 5039, JsonForm.TEXT),
    PgType("xid8", 5069, 271, JsonForm.INTEGER),
)

ARRAYS: tuple[PgType, ...] = tuple(
    PgType(f"{kind.name}[]", kind.array_oid, 0, JsonForm.ARRAY, element=kind) for kind in BUILT_IN if kind.array_oid
)
"""The array types of the built-in types."""

BY_OID: dict[int, PgType] = {kind.oid: kind for kind in (*BUILT_IN, *ARRAYS)}
"""Built-in types and arrays of them by their OID."""

OIDS: dict[str, int] = {kind.name: kind.oid for kind in BUILT_IN}
"""The OID of a built-in type by its name."""

EXTENSIONS: dict[str, Logical] = {
    "citext": Logical.TEXT,
    "geography": Logical.OTHER,
    "geometry": Logical.OTHER,
    "halfvec": Logical.OTHER,
    "hstore": Logical.HSTORE,
    "ltree": Logical.LTREE,
    "sparsevec": Logical.OTHER,
    "vector": Logical.OTHER,
}
"""Base types of extensions, whose OIDs differ from database to database. In JSON they are strings."""
