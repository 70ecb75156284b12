"""Mutated Set and Get requests, straight into the service.

Each is done, or refused in words and changes nothing.
"""

from __future__ import annotations

import json
import random

import pytest
from finsy import GNMIPath
from finsy.proto import gnmi

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.traffic import DEFAULT_SETTINGS
from mrc_testbed.switch.device.traffic_paths import CONFIG_LEAVES
from mrc_testbed.switch.server.chassis import Chassis
from mrc_testbed.switch.server.gnmi.interface_traffic import ChassisTraffic
from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.gnmi.tree import GnmiError
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher
from tests.refusals import may_raise

REQUESTS = 150
NAMES = (
    "qos",
    "interfaces",
    "interface",
    "output",
    "config",
    "rate-bps",
    "queues",
    "queue",
    "state",
    "depth-packets",
    "impairments",
    "input",
    "delay-us",
    "loss-pattern",
    "*",
    "",
    "name",
    "interface-id",
    "x" * 50,
    "openconfig-qos:config",
)
ATOMS = (0, 1, -1, 10**30, 1.5, True, None, "", "101", "12", "x", 2**64, "9" * 5000)


class Mutant:
    """Requests near the good ones."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def elem(self) -> gnmi.PathElem:
        out = gnmi.PathElem(name=self.rng.choice(NAMES))
        for _ in range(self.rng.choice([0, 0, 0, 1, 2])):
            out.key[self.rng.choice(["name", "interface-id", "x", ""])] = self.rng.choice(
                ["a", "*", "7", "8", "", "\0"]
            )
        return out

    def path(self) -> gnmi.Path:
        rng = self.rng
        if rng.random() < 0.4:
            return gnmi.Path(elem=[self.elem() for _ in range(rng.randrange(7))], origin=rng.choice(["", "", "x"]))
        leaf = rng.choice(list(CONFIG_LEAVES))
        parent = (
            "interfaces/interface[name=a]" if leaf[0] == "impairments" else "qos/interfaces/interface[interface-id=a]"
        )
        out = GNMIPath("/".join((parent, *leaf))).path
        for _ in range(rng.randrange(3)):
            kind = rng.randrange(4)
            if kind == 0:
                del out.elem[rng.randrange(len(out.elem) + 1) :]
            elif kind == 1:
                out.elem.append(self.elem())
            elif kind == 2 and out.elem:
                out.elem[rng.randrange(len(out.elem))].CopyFrom(self.elem())
        return out

    def tree(self, depth: int = 0) -> object:
        rng = self.rng
        kind = rng.randrange(6) if depth < 5 else 5
        if kind < 3:
            return {rng.choice(NAMES): self.tree(depth + 1) for _ in range(rng.randrange(4))}
        if kind == 3:
            return [{"name": rng.choice(["7", 7, None, [], {}]), "config": self.tree(depth + 1)}]
        return rng.choice(ATOMS)

    def value(self) -> gnmi.TypedValue:
        rng = self.rng
        return rng.choice(
            [
                lambda: gnmi.TypedValue(uint_val=rng.choice([0, 1, 2**64 - 1])),
                lambda: gnmi.TypedValue(int_val=rng.choice([0, -1, 2**63 - 1])),
                lambda: gnmi.TypedValue(string_val=rng.choice(["", "101", "x", "0" * 5000])),
                lambda: gnmi.TypedValue(json_val=json.dumps(self.tree()).encode()),
                lambda: gnmi.TypedValue(json_ietf_val=json.dumps(self.tree()).encode()),
                lambda: gnmi.TypedValue(json_val=rng.randbytes(rng.randrange(20))),
                lambda: gnmi.TypedValue(bool_val=True),
                gnmi.TypedValue,
            ]
        )()

    def request(self) -> gnmi.SetRequest:
        rng = self.rng
        out = gnmi.SetRequest(prefix=self.path() if rng.random() < 0.2 else None)
        for updates in (out.update, out.replace):
            for _ in range(rng.randrange(3)):
                updates.add(path=self.path(), val=self.value())
        out.delete.extend(self.path() for _ in range(rng.randrange(2)))
        return out


@pytest.mark.parametrize("seed", range(2))
def test_requests__mutated_are_done_or_refused(seed):
    interfaces, traffic = Interfaces(InterfaceWatcher()), ChassisTraffic()
    chassis = Chassis("s1", 1, {1: "a"}, None)
    chassis.device = P4Device(1, "s1")
    traffic.add(chassis)
    interfaces.add_device("s1", ["a"])
    service = GnmiService(interfaces, traffic)
    mutant, carried_out_count, refusal_count = Mutant(seed), 0, 0
    for _ in range(REQUESTS):
        request = mutant.request()
        get = gnmi.GetRequest(
            path=[mutant.path()], type=mutant.rng.randrange(4), encoding=mutant.rng.choice([0, 1, 2, 4])
        )
        for call in (lambda r=request: service._set(r), lambda g=get: service._get(g)):
            settings_before = dict(chassis.traffic)
            with may_raise(GnmiError) as errors:
                call()
                carried_out_count += 1
            if errors:
                assert len(str(errors[0])) > 10 and chassis.traffic == settings_before
                refusal_count += 1
        chassis.traffic.get(1, DEFAULT_SETTINGS).check()
    assert min(carried_out_count, refusal_count) > 20
