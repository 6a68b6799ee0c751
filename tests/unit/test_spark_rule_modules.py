"""Which modules functions of rules are made of, and the files in which executors get them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.last_words import find_unresolved
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.lookups.reviewing import check_lookups
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.rule_modules import find_modules, forget_modules
from psql_streamer.spark.shipping import check_files, pack, put_on_path

FILES = {
    "rules_of_mine/__init__.py": "",
    "rules_of_mine/orders.py": "import json\nimport numpy\nfrom . import words\nfrom prices_of_mine import FACTOR\n",
    "rules_of_mine/words.py": "def say():\n    import spoken_of_mine.deep.down\n",
    "rules_of_mine/table.csv": "a,b\n",
    "rules_of_mine/__pycache__/old.pyc": "",
    "prices_of_mine.py": "FACTOR = 3\nimport pyspark\n",
    "spoken_of_mine/deep/down.py": "import rules_of_mine\n",
    "others_of_mine.py": "",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def options(**keys: Any) -> SparkOptions:
    return SparkOptions.model_validate({"master": "spark://h:7077", **keys})


def rules(function: str) -> dict[str, Any]:
    return {"tables": {"orders": {"function": function}}}


def test_a_rule_is_made_of_its_package_and_of_what_that_imports_outside_of_the_installed_packages(folder: Path) -> None:
    found = find_modules(["rules_of_mine.orders"])
    assert [module.name for module in found] == ["prices_of_mine", "rules_of_mine", "spoken_of_mine"]
    assert found[0].places == (folder / "prices_of_mine.py",)


def test_a_rule_in_an_installed_package_is_made_of_that_package() -> None:
    assert [module.name for module in find_modules(["msgspec.json"])] == ["msgspec"]
    assert find_modules(["json"]) == ()
    assert find_modules(["there_is_no_such_module"]) == ()


def test_modules_that_are_forgotten_are_imported_anew(folder: Path) -> None:
    import prices_of_mine  # type: ignore[import-not-found]

    forget_modules(["rules_of_mine.orders"])
    assert sys.modules.get("prices_of_mine") is not prices_of_mine
    assert "numpy" in sys.modules


def test_packages_with_compiled_modules_stay_also_where_they_lie_beside_the_users_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "compiled_of_mine").mkdir()
    (folder / "compiled_of_mine" / "__init__.py").write_text("")
    (folder / "uses_compiled_of_mine.py").write_text("import compiled_of_mine\n")
    package, _ = map(import_module, ("compiled_of_mine", "uses_compiled_of_mine"))

    fast = ModuleType("compiled_of_mine.fast")
    fast.__loader__ = ExtensionFileLoader(fast.__name__, str(folder / "compiled_of_mine" / "fast.so"))
    monkeypatch.setitem(sys.modules, fast.__name__, fast)
    forget_modules(["uses_compiled_of_mine"])
    assert "uses_compiled_of_mine" not in sys.modules
    assert sys.modules["compiled_of_mine"] is package
    assert sys.modules[fast.__name__] is fast


def test_what_is_shipped_can_be_imported_from_its_archive_alone(folder: Path, tmp_path_factory: Any) -> None:
    shipment = pack(options(**rules("rules_of_mine.orders:mask")), tmp_path_factory.mktemp("shipped"))
    assert shipment.told == "modules of rules: prices_of_mine, rules_of_mine, spoken_of_mine"
    [archive] = shipment.files
    with zipfile.ZipFile(archive) as opened:
        assert "rules_of_mine/table.csv" in opened.namelist()
        assert not any("__pycache__" in name or "others" in name for name in opened.namelist())
    script = f"import sys; sys.path.insert(0, {str(archive)!r}); import rules_of_mine.orders as o; o.words.say()"
    subprocess.run([sys.executable, "-c", script], check=True, cwd="/")


def test_the_name_of_an_archive_says_what_is_in_it(folder: Path, tmp_path_factory: Any) -> None:
    names = []
    for text in ("FACTOR = 3\n", "FACTOR = 3\n", "FACTOR = 4\n"):
        (folder / "prices_of_mine.py").write_text(text)
        given = options(**rules("prices_of_mine:triple"))
        names.append(pack(given, tmp_path_factory.mktemp("shipped")).files[0].name)
    assert names[0] == names[1] != names[2]


def test_a_local_engine_gets_what_is_named_alone(folder: Path, tmp_path_factory: Any) -> None:
    given = options(**rules("prices_of_mine:triple"), pyFiles=[str(folder / "others_of_mine.py")])
    shipment = pack(given.model_copy(update={"master": "local[*]"}), tmp_path_factory.mktemp("shipped"))
    assert shipment.files == (folder / "others_of_mine.py",)


@pytest.mark.parametrize(("given", "entry"), [("", "rules_of_mine/"), ("rules_of_mine", "rules_of_mine/orders.py")])
def test_a_folder_is_a_package_or_what_its_modules_lie_in(
    folder: Path, tmp_path_factory: Any, given: str, entry: str
) -> None:
    shipment = pack(options(pyFiles=[str(folder / given)]), tmp_path_factory.mktemp("shipped"))
    with zipfile.ZipFile(shipment.files[0]) as opened:
        assert entry in opened.namelist()


def test_what_is_named_can_be_imported_by_the_service_behind_everything_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["library"])
    named = [str(folder / name) for name in ("rules_of_mine", "a.zip", "prices_of_mine.py")]
    put_on_path(options(pyFiles=named))
    assert sys.path == ["library", str(folder), str(folder / "a.zip")]


def test_files_that_are_named_from_a_working_folder_that_was_removed_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["library"])
    given = options(pyFiles=["rules"])
    put_on_path(given)
    with pytest.raises(HandlerRefused, match="there is no rules"):
        pack(given, tmp_path)


def test_files_that_are_not_there_are_findings_and_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("")
    given = options(pyFiles=["/nowhere.py", str(tmp_path / "x.so")], jars=["/nowhere.jar"])
    assert [finding.problem for finding in check_files(given)] == [
        "[spark] pyFiles: there is no /nowhere.py",
        f"[spark] pyFiles: {tmp_path}/x.so is neither a .py file, a .zip file nor a folder",
        "[spark] jars: there is no /nowhere.jar",
    ]
    with pytest.raises(HandlerRefused, match=r"there is no /nowhere\.py"):
        pack(given, tmp_path)


def test_files_that_cannot_be_seen_are_findings_with_the_reason(tmp_path: Path) -> None:
    below_a_file, too_long = tmp_path / "x.py" / "rules", tmp_path / ("x" * 300)
    (tmp_path / "x.py").touch()
    given = options(pyFiles=[str(below_a_file)], jars=[str(too_long), str(tmp_path)])
    lookups = {"a": LookupOptions.model_validate({"kind": "csv", "path": str(too_long)})}
    assert [finding.problem for finding in (*check_files(given), *check_lookups(lookups, "local[*]"))] == [
        f"[spark] pyFiles: {below_a_file} cannot be read (not a directory)",
        f"[spark] jars: {too_long} cannot be read (file name too long)",
        f"[spark] jars: {tmp_path} is no file",
        f"lookup a: {too_long} cannot be read (file name too long)",
    ]


def test_a_folder_that_is_too_large_is_refused(folder: Path, tmp_path_factory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("psql_streamer.spark.shipping._MOST_SHIPPED_BYTES", 20)
    with pytest.raises(HandlerRefused, match="MB to ship to executors: keep modules of rules in a folder of their own"):
        pack(options(pyFiles=[str(folder)]), tmp_path_factory.mktemp("shipped"))


def test_a_module_that_makes_a_function_of_spark_when_it_is_imported_is_no_finding(folder: Path) -> None:
    (folder / "udf_of_mine.py").write_text(
        "from pyspark.sql import functions as f\nsame = f.udf(lambda x: x, 'string')\ndef rule(df):\n    return df\n"
    )
    assert list(SparkHandler("spark", options(**rules("udf_of_mine:rule"))).check()) == []


def test_packages_are_coordinates_and_not_for_a_spark_connect_server() -> None:
    assert options(packages=["org.postgresql:postgresql:42.7.8"]).packages == ("org.postgresql:postgresql:42.7.8",)
    with pytest.raises(ValidationError, match="group:artifact:version"):
        options(packages=["postgresql"])
    [finding] = check_files(options(remote="sc://h", packages=["a:b:1"]))
    assert finding.problem == "[spark] packages: a Spark Connect server resolves packages when it starts"


def test_a_package_that_no_repository_has_is_named() -> None:
    said = ["\t\t:: org.postgresql#postgresql;0.0.1: not found", "unresolved dependency: a.b#c;0.0.1: not found]"]
    assert find_unresolved([*said, f"Exception [{said[1]}"]) == ["a.b:c:0.0.1"]
