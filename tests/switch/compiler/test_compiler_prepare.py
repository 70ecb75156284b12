"""Parts that all programs share are made once.

See `mrc_testbed.switch.compiler.prepare()`, as setup may call it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.switch.compiled_programs import ROOT


def test_prepare__runtime_and_grammar_are_in_the_cache_and_stay_as_they_are(tmp_path):
    code = "import mrc_testbed.switch.compiler; mrc_testbed.switch.compiler.prepare()"
    times_by_file = []
    for _ in range(2):
        env = {**os.environ, "MRC_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)
        times_by_file.append({path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()})
    assert sorted(name.partition("-")[0] for name in times_by_file[0]) == ["p4", "p4runtime"]
    assert times_by_file[0] == times_by_file[1]
