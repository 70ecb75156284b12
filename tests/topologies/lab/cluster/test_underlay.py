"""Probes of the network between machines, over loopback.

Another address of it stands for another machine.
"""

import contextlib
import socket
import subprocess
import sys

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.cluster import clock
from mrc_testbed.topologies.lab.cluster.underlay import Echo, probe

LOCAL_ADDRESS, REMOTE_ADDRESS = "127.0.0.1", "127.0.0.77"


def test_probe__round_trips_of_frames_of_full_size():
    with contextlib.closing(Echo(REMOTE_ADDRESS)):
        result = probe(LOCAL_ADDRESS, REMOTE_ADDRESS, 4400)
    assert (result["count"], result["lost"]) == (12, 0) and 0 < result["min_s"] <= result["median_s"]


def test_echo__frees_its_port_and_takes_no_other_ones():
    echo = Echo(REMOTE_ADDRESS)
    with pytest.raises(FabricError, match=r"UDP port 4789 of 127.0.0.77 cannot be used"):
        Echo(REMOTE_ADDRESS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(0.05)
        stranger.connect((REMOTE_ADDRESS, 4789))
        stranger.send(b"what is this")
        with pytest.raises(TimeoutError):
            stranger.recv(100)
    echo.close()
    echo.close()
    with contextlib.closing(Echo(REMOTE_ADDRESS)):
        pass


def test_probe__nobody_there_and_a_path_too_narrow():
    with pytest.raises(FabricError, match=r"127.0.0.78 refuses UDP port 4789"):
        probe(LOCAL_ADDRESS, "127.0.0.78", 1000)
    with (
        contextlib.closing(Echo(REMOTE_ADDRESS)),
        pytest.raises(FabricError, match=r"an MTU of \d+ and a frame .* needs \d+"),
    ):
        probe(LOCAL_ADDRESS, REMOTE_ADDRESS, 65_500 - 8 - 28 + 60)


def test_measure__offset_of_another_clock_from_its_best_round_trip():
    offset, exact = clock.measure(lambda: __import__("time").monotonic() - 1234.5)
    assert abs(offset - 1234.5) <= exact < 1.0


@pytest.mark.root
@pytest.mark.parametrize("ahead", [1000.25, -3.75])
def test_enter__goes_on_with_that_clock_also_within_another_offset(ahead):
    code = f"""
import time
from mrc_testbed.topologies.lab.cluster.clock import enter
before = time.monotonic()
enter({ahead})
enter({ahead})
print(time.monotonic() - before)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2 * ahead <= float(result.stdout) < 2 * ahead + 30
