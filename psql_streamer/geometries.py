"""The kinds of geometries that MySQL and MariaDB have columns of."""

GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
"""By the number that the binary log has for each: that of its well-known binary, and 0 for one of any kind."""
