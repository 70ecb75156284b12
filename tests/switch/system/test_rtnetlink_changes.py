"""Snapshots of the interfaces while others come and go: whole ones, however long it takes."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import subprocess, sys
    from mrc_testbed.switch.system import rtnetlink

    many = "".join(f"link add x{n} type veth peer name y{n}\\n" for n in range(200))  # no answer in one piece
    subprocess.run(["ip", "-batch", "-"], input=many, text=True, check=True)
    busy = [
        subprocess.Popen(["sh", "-c", f"while :; do ip link add a{n} type veth peer name b{n}; ip link del a{n}; done"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for n in range(4)
    ]
    try:
        for _ in range(60):
            assert "lo" in rtnetlink.read_links()
    finally:
        for one in busy:
            one.kill()
"""


@pytest.mark.root
def test_snapshot__while_interfaces_come_and_go():
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace")
    result = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
