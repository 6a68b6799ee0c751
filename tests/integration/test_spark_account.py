"""Spark where the machine has no account for the user id of the service, as in containers of OpenShift."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NO_ACCOUNT = 48123
"""A user id that no machine gives away."""

_START_AND_COUNT = """
from psql_streamer.spark.jvm import Jvm
from psql_streamer.spark.options import SparkOptions
jvm = Jvm(SparkOptions())
print(jvm.spark.range(3).count(), jvm.spark.sparkContext.sparkUser())
jvm.stop()
"""


@pytest.mark.soak
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root starts a process of another user, by setpriv",
)
def test_spark_starts_for_a_user_id_without_an_account_and_without_a_home(tmp_path: Path) -> None:
    # It may pass folders of other users, so that it finds the interpreter of the tests wherever that is.
    as_nobody = f"setpriv --reuid {NO_ACCOUNT} --regid {NO_ACCOUNT} --clear-groups --inh-caps +dac_override"
    command = [*as_nobody.split(), "--ambient-caps", "+dac_override", sys.executable, "-c", _START_AND_COUNT]
    tmp_path.chmod(0o777)
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}

    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env=environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert ran.stdout.split() == ["3", str(NO_ACCOUNT)], ran.stderr
