"""The rules of [spark.tables] as the configuration has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.config import load
from psql_streamer.errors import ConfigError
from psql_streamer.model import ReplicaIdentity
from psql_streamer.spark.options import Mask, SparkOptions
from psql_streamer.spark.rules import Rules
from tests.columns import postgres_table
from tests.config_files import MINIMAL, written
from tests.spark_changes import ORDERS

SECRET = "hunter2-hunter2-hunter2"


def loaded(folder: Path, rule: str, spark: str = "") -> SparkOptions:
    sink = MINIMAL.replace("passthrough", "spark") + 'deadLetterTopic = "dead"\n'
    text = f"{sink}[spark]\n{spark}\n[spark.tables.orders]\n{rule}\n"
    options = load(written(folder, text), {"MASK": SECRET}).handlers["spark"].options
    assert isinstance(options, SparkOptions)
    return options


def test_a_mask_is_a_method_or_a_table(tmp_path: Path) -> None:
    mask = 'mask = { a = "null", b = { method = "partial", keepFirst = 2 }, c = { method = "constant", value = 0 } }'
    (rule,) = loaded(tmp_path, mask).tables["orders"]
    assert rule.mask == {
        "a": Mask(method="null"),
        "b": Mask(method="partial", keep_first=2, keep_last=4),
        "c": Mask(method="constant", value=0),
    }


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ('mask = { a = "hash" }', "masks column a of tables 'orders' with hash, which needs maskSecret in [spark]"),
        ('mask = { a = "tokenise" }', "with tokenise, which needs maskSecret in [spark] or in the rule, as ${NAME}"),
        ('mask = { a = "encrypt" }', 'must be one of "hash", "partial", "null", "constant" or "tokenise"'),
        ('mask = { a = "null" }\ndrop = ["a"]', "has column a both in mask and in drop: keep one"),
        ('rename = { a = "" }', "must not be empty"),
        ('maskSecret = "hunter2"', "the value (not shown) is shorter than 16 characters"),
        ('onError = "skip"', 'must be one of "stop", "dead-letter" or "null"'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, rule: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, rule)
    assert problem in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("where", ["spark", "rule"])
def test_the_secret_of_masks_is_never_shown(tmp_path: Path, where: str) -> None:
    secret, rule = 'maskSecret = "${MASK}"', 'mask = { id = "hash", amount = "tokenise" }'
    options = loaded(tmp_path, rule, secret) if where == "spark" else loaded(tmp_path, f"{rule}\n{secret}")
    found = Rules(options.select_rules(None), options.on_error, options.mask_secret).find(
        postgres_table(1, "public", "orders", ReplicaIdentity.FULL, ORDERS)
    )
    assert found.steps.mask["id"].secret == SECRET
    for shown in (options, *options.tables["orders"], found, found.steps):
        assert SECRET not in repr(shown)


def test_a_rule_that_gives_null_needs_no_dead_letter_topic(tmp_path: Path) -> None:
    assert not loaded(tmp_path, 'onError = "null"').puts_rows_aside
