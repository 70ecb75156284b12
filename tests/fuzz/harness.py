"""Coverage-guided fuzzing of one target, the same as `mrc fuzz`, with libFuzzer's own arguments.

python tests/fuzz/harness.py endpoints -atheris_runs=1000000 -max_total_time=600 corpus/
"""

from __future__ import annotations

import sys

from mrc_testbed.simulator.simtest.fuzz import TARGETS, run_atheris

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: harness.py {{{','.join(TARGETS)}}} [libFuzzer arguments]")
    run_atheris(sys.argv[1], sys.argv[2:])
