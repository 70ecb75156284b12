"""Interfaces as the daemon learns them from the kernel.

The kernel's messages may be more than can be kept.
"""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from mrc_testbed.switch.server import netlink
from mrc_testbed.switch.system.rtnetlink import InterfaceState


def test_watcher__a_renamed_interface_is_gone_under_its_old_name_and_the_time_is_that_of_a_change():
    watcher, notifications = netlink.InterfaceWatcher(), []
    watcher.listen(lambda name, state: notifications.append((name, state and state.oper_status)))
    watcher._update(InterfaceState("a", 7, True, "UP", 1500, 1))
    change_time_ns = watcher.links["a"].last_change_ns
    watcher._update(InterfaceState("a", 7, True, "UP", 9216, 1))
    assert watcher.links["a"].mtu == 9216 and watcher.links["a"].last_change_ns == change_time_ns > 0
    watcher._update(InterfaceState("b", 7, True, "DOWN", 9216, 2))
    watcher._remove("b", 8)  # of an earlier interface of that name
    assert notifications == [("a", "UP"), ("a", "UP"), ("a", None), ("b", "DOWN")] and list(watcher.links) == ["b"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes veths: needs root")
def test_watcher__overrun_is_noticed_and_everything_read_again(monkeypatch):
    monkeypatch.setattr(netlink, "RECEIVE_BUFFER_BYTES", 2048)

    async def check():
        watcher = netlink.InterfaceWatcher()
        watcher.start()
        try:
            for number in range(8):
                pair = [f"zzb2o{number}", "type", "veth", "peer", "name", f"zzb2p{number}"]
                subprocess.run(["ip", "link", "add", *pair], check=True)
            while not watcher.overruns:
                await asyncio.sleep(0)
            assert {f"zzb2o{number}" for number in range(8)} <= set(watcher.links)
        finally:
            watcher.close()

    try:
        asyncio.run(asyncio.wait_for(check(), 10.0))
    finally:
        for number in range(8):
            subprocess.run(["ip", "link", "del", f"zzb2o{number}"], stderr=subprocess.DEVNULL, check=False)
