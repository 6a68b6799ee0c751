"""The rules of the demo: one of each kind for the shop on PostgreSQL, one for the shops elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psql_streamer.demo.steady_shop import TEST_TAG

BASKET_TOPIC = "basket_lines"
"""Follows the topics' prefix and a dot."""

_ON_POSTGRES = """
[spark]
master = "local[2]"
maskSecret = "{secret}"

# A table of the stream, kept current from it: rules join it by its name.
[spark.lookups.customers]
kind = "changelog"
source = "shop"
table = "shop.customers"

[spark.tables."shop.customers"]
coerce = {{ tags = "array<string>" }}
mask = {{ email = "tokenise", phone = {{ method = "partial", keepLast = 2 }} }}
drop = ["note"]
rename = {{ since = "customer_since" }}
where = "NOT array_contains(tags, '{test_tag}')"

[spark.tables."shop.orders"]
sql = \"\"\"
    SELECT o.*, CAST(o.amount * 0.19 AS DECIMAL(12, 2)) AS vat,
           CASE WHEN o.amount >= 500 THEN 'large' WHEN o.amount >= 50 THEN 'medium' ELSE 'small' END AS size,
           get_json_object(o.meta, '$.channel') AS channel, c.segment AS customer_segment
    FROM changes o LEFT JOIN customers c ON c.id = o.customer_id
\"\"\"

[spark.tables."shop.order_items"]
function = "psql_streamer.demo.shop_rules:add_total"

# An event for each thing in a basket, in a topic of its own. What is no basket goes to the dead letters.
[spark.tables."shop.baskets"]
coerce = {{ contents = "array<struct<sku: string, quantity: int>>" }}
sql = \"\"\"
    SELECT id, thing.sku, thing.quantity, line AS _part, id || '/' || line AS _key, '{prefix}.{basket_topic}' AS _topic
    FROM changes LATERAL VIEW posexplode(contents) AS line, thing
\"\"\"
onError = "dead-letter"
"""

_ELSEWHERE = """
[spark]
master = "local[2]"

[spark.tables."{schema}.orders"]
sql = \"\"\"
    SELECT *,
           CAST(CAST(amount AS DECIMAL(12, 2)) * 0.19 AS DECIMAL(12, 2)) AS vat,
           CASE WHEN CAST(amount AS DECIMAL(12, 2)) >= 500 THEN 'large'
                WHEN CAST(amount AS DECIMAL(12, 2)) >= 50 THEN 'medium'
                WHEN CAST(amount AS DECIMAL(12, 2)) >= 0 THEN 'small' END AS size,
           get_json_object(meta, '$.channel') AS channel
    FROM changes
\"\"\"
"""


@dataclass(frozen=True, slots=True)
class ShopRules:
    """Rules, and what is to be seen of them.

    config: the section [spark], by the prefix of the topics. tells: lines that say what they do. lookup: what orders
    are joined with, if anything; its table has the same name. cost: what of them takes time, if anything.
    """

    config: Callable[[str], str]
    tells: tuple[str, ...]
    lookup: str = ""
    cost: str = ""


ADDED = frozenset({"vat", "size", "channel", "customer_segment", "total"})
"""Columns that rules add."""

JOINED = {"orders": "customer_segment"}
"""Table -> the column that its events have from the lookup."""

ON_POSTGRES = ShopRules(
    lambda prefix: _ON_POSTGRES.format(
        prefix=prefix, basket_topic=BASKET_TOPIC, test_tag=TEST_TAG, secret=secrets.token_hex(16)
    ),
    (
        "customers    steps: coerce tags, mask email and phone, drop note, rename since, where: no test customers",
        "orders       sql: vat, size and channel; the customer's segment from a lookup that the stream keeps current",
        "order_items  function, in Python: total",
        f"baskets      sql: an event for each thing in it, to {BASKET_TOPIC}; what is no basket to the dead letters",
    ),
    "customers",
    "four rules, some of which Spark plans for every batch, in a JVM that has just started: docs/spark.md, Cost",
)


def make_order_rules(schema: str) -> ShopRules:
    """One rule, of the orders in a schema."""
    return ShopRules(
        lambda _: _ELSEWHERE.format(schema=schema), ("orders       sql: vat, size and channel of each order",)
    )


def add_total(df: Any) -> Any:
    """A rule of order items: what a line costs. df: a DataFrame of Spark."""
    return df.withColumn("total", (df["quantity"] * df["price"]).cast("decimal(12,2)"))
