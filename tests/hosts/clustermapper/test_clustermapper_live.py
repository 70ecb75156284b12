"""Clustermapper on a real fabric.

Its process, its sockets in the hosts' namespaces, the switches' P4 program.
"""

import socket
import struct
import subprocess
import sys
import time

import pytest

from mrc_testbed.hosts.clustermapper.packets import UDP_PORT
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, JsonlPeerError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan

pytestmark = pytest.mark.root
PLAN = Plan(2, 2, 2, 2)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    ports = Ports(p4runtime=19759, gnmi=19539)
    with Fabric(PLAN, LabOptions(ports=ports), tmp_path_factory.mktemp("m")) as fabric:
        wait_until(lambda: fabric.mapper.request("status")["states"] == {"ok": 24})
        yield fabric


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)


def states(fabric):
    """Return the targets that are not ok: {(host, switch): state}."""
    rows = fabric.mapper.request("targets")["targets"]
    return {(row["host"], row["target"]): row["state"] for row in rows if row["state"] != "ok"}


def test_cut_link__is_told_by_both_hosts_that_probe_it(fabric):
    with fabric.mapper.watch() as watch:
        cut_at = fabric.link("p1-t0-0", "p1-t1-1", is_up=False)
        events = []
        while len(events) < 2:
            event = watch.get(20)
            assert event is not None
            if event["state"] == "down":
                events.append(event)
    assert sorted((e["host"], e["target"], e["kind"]) for e in events) == [
        ("h0", "p1-t1-1", "t1"),
        ("h1", "p1-t1-1", "t1"),
    ]
    assert all(e["link"] == "p1-t0-0 p1-t1-1" and cut_at <= e["since"] <= e["t"] for e in events)
    assert states(fabric) == {("h0", "p1-t1-1"): "down", ("h1", "p1-t1-1"): "down"}
    fabric.link("p1-t0-0", "p1-t1-1", is_up=True)
    wait_until(lambda: not states(fabric))


def test_probe_all__names_the_bad_links(fabric):
    fabric.link("h2", "p0-t0-1", is_up=False)
    answer = fabric.mapper.request("probe_all", count=10, timeout_s=30.0)
    assert {row["link"]: row["state"] for row in answer["links"] if row["state"] != "ok"} == {"h2 p0-t0-1": "down"}
    assert len(answer["links"]) == len(PLAN.links)
    assert next(row for row in answer["links"] if row["link"] == "p0-t0-1 p0-t1-0")["by"] == ["h3"]
    fabric.link("h2", "p0-t0-1", is_up=True)
    wait_until(lambda: not states(fabric))


def test_switch_without_power__is_told_and_forgotten(fabric):
    fabric.power("p0-t1-0", False)
    wait_until(lambda: states(fabric) == dict.fromkeys([(f"h{n}", "p0-t1-0") for n in range(4)], "down"))
    fabric.power("p0-t1-0", True)
    wait_until(lambda: not states(fabric))


def test_busy_machine__raises_no_alarm(fabric):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        with fabric.mapper.watch() as watch:
            while watch.get(0.5) is not None:
                pass  # the snapshot
            assert watch.get(5.0) is None
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_hostile_packets__change_nothing(fabric):
    """Frames with probes of another key, cut ones and noise, put on a switch's wire towards h0."""
    first_status = fabric.mapper.request("status")
    usid = bytes.fromhex("fcbbbb003000") + bytes(10)
    address = PLAN.address(PLAN.host("h0"), 0).packed
    word = struct.pack(">I", 6 << 28 | 46 << 22)
    inner = word + struct.pack(">HBB", 44, 17, 64) + address + address + struct.pack(">HHHH", 0, UDP_PORT, 44, 0)
    outer = bytes(12) + b"\x86\xdd" + word + struct.pack(">HBB", 84, 41, 64) + address + usid
    fake = outer + inner + b"MRCM" + b"\xff" * 4 + bytes(28)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("p0-t0-0-eth1", 0))
        for length in (*range(110, len(fake) + 1), 0, 1, 2):
            wire.send(fake[:length] if length > 14 else fake + bytes(200))
    wait_until(lambda: sum(fabric.mapper.request("status")["refused"].values()) > sum(first_status["refused"].values()))
    assert fabric.mapper.request("status")["states"] == {"ok": 24}


@pytest.mark.parametrize(
    "request_, says",
    [
        ({"op": "dance"}, "no op 'dance' (has: probe_all, shutdown, start, status, targets, watch)"),
        ({"op": "probe_all", "count": 0}, "give 1 to 10000 probes"),
        ({"op": "probe_all", "count": "many"}, "give a number of probes"),
        ({"op": "probe_all", "classes": ["gold"]}, "give a list of control, data"),
    ],
)
def test_requests__that_make_no_sense_are_refused(fabric, request_, says):
    fields = dict(request_)
    with pytest.raises(JsonlPeerError, match=says.replace("(", r"\(").replace(")", r"\)")):
        fabric.mapper.request(fields.pop("op"), **fields)


def test_start__without_a_fabric_says_what_is_missing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "mrc_testbed.hosts.clustermapper", "--run-dir", tmp_path], capture_output=True, text=True
    )
    assert run.returncode == 1
    assert run.stderr == (
        f"mapper cannot start: {tmp_path}/plan.json: no such file: bring the fabric up first (`mrc up`)\n"
    )
    with pytest.raises(JsonlError):
        JsonlClient(tmp_path / "mapper.sock").request("status")
