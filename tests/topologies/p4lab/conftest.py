"""A daemon with one switch, without root."""

import subprocess
import sys
import time

import pytest


@pytest.fixture
def address(tmp_path):
    """Start a daemon with the device s1, id 0, behind a Unix socket."""
    devices = tmp_path / "devices.json"
    devices.write_text('[{"name": "s1", "device_id": 0, "ports": {}}]')
    socket = tmp_path / "p4.sock"
    command = [sys.executable, "-m", "mrc_testbed.switch.server", "--config", str(devices)]
    command += ["--p4runtime", f"unix:{socket}", "--gnmi", f"unix:{tmp_path}/gnmi.sock"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        while not socket.exists():
            assert daemon.poll() is None
            time.sleep(0.05)
        yield f"unix:{socket}"
        daemon.terminate()
