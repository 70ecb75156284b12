"""Start of a NIC process: whose limits it has."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.repository import ROOT

TAKE_LIMITS = """
import json, resource, sys
from mrc_testbed.hosts.nicd.launch import take_limits_of
soft, hard = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
kept_limits = take_limits_of(int(sys.argv[1]))
print(json.dumps([kept_limits, resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def taken_limits(soft, hard):
    """Return what a process of these limits took over of one with 300 and 400 descriptors."""
    with subprocess.Popen(["sh", "-c", "ulimit -Sn 300; ulimit -Hn 400; echo; exec cat"], stdin=-1, stdout=-1) as host:
        host.stdout.readline()
        command = [sys.executable, "-c", TAKE_LIMITS, str(host.pid), str(soft), str(hard)]
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        host.stdin.close()
    kept_limits, limits = json.loads(output)
    return kept_limits, tuple(limits)


def test_take_limits_of__a_process_of_the_host():
    assert taken_limits(64, 500) == ([], (300, 400))


def test_take_limits_of__without_privilege_names_what_stays():
    kept_limits, limits = taken_limits(64, 100)
    assert (kept_limits, limits) in (
        (["RLIMIT_NOFILE"], (64, 100)),
        ([], (300, 400)),
    )  # the latter for CAP_SYS_RESOURCE
