"""Requests to the switches' daemon over gNMI end with the daemon.

Calls under way end at once, later ones before they are sent.
"""

import re
import threading

import pytest

from mrc_testbed.topologies.lab import traffic_control_gnmi
from mrc_testbed.topologies.lab.traffic_control import TrafficError
from mrc_testbed.topologies.lab.traffic_control_gnmi import GnmiTraffic
from mrc_testbed.topologies.plan import Plan

DEATH_REASON = "switchd (pid 7) was killed by SIGKILL"
UNUSED_ADDRESS = "127.0.0.1:1"
LIMIT_S = 60.0


def read(traffic, errors):
    try:
        traffic.read("p0-t0-0-eth1")
    except TrafficError as error:
        errors.append(str(error))


def test_call_under_way__ends_with_the_cause(monkeypatch):
    monkeypatch.setattr(traffic_control_gnmi, "TIMEOUT_S", LIMIT_S)
    traffic, errors = GnmiTraffic(Plan(), UNUSED_ADDRESS), []
    reading = threading.Thread(target=read, args=(traffic, errors), daemon=True)
    reading.start()
    while traffic._channel is None:
        pass
    traffic.lost("switchd", DEATH_REASON)
    reading.join(LIMIT_S / 2)
    assert errors == [f"gNMI Get: {DEATH_REASON}"]


def test_later_calls__are_not_sent_until_the_daemon_is_back(monkeypatch):
    monkeypatch.setattr(traffic_control_gnmi, "TIMEOUT_S", 0.1)
    traffic = GnmiTraffic(Plan(), UNUSED_ADDRESS)
    traffic.lost("switchd", DEATH_REASON)
    with pytest.raises(TrafficError, match=re.escape(f"gNMI Get: {DEATH_REASON}")):
        traffic.read("p0-t0-0-eth1")
    assert traffic._channel is None
    traffic.on_restarted_part("switchd")
    with pytest.raises(TrafficError, match=r"no answer in 0.1 s: do the switches run\?"):
        traffic.read("p0-t0-0-eth1")
    traffic.close()


def test_slow_start__is_asked_again_while_the_daemon_works(monkeypatch):
    monkeypatch.setattr(traffic_control_gnmi, "TIMEOUT_S", 0.05)
    traffic, works = GnmiTraffic(Plan(), UNUSED_ADDRESS), iter([True, True, False])
    traffic.gets_on = lambda: next(works)
    with pytest.raises(TrafficError, match="no answer"):
        traffic.read("p0-t0-0-eth1")
    assert list(works) == []
    traffic.close()
