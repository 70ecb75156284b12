"""Counts of switches over P4Runtime.

Those of embedded switches, which need ports, are in test_traffic_control_live.py.
"""

import json
from queue import SimpleQueue
from types import SimpleNamespace

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from mrc_testbed.ipc.rundir import RunDir
from mrc_testbed.topologies.lab.cables import Cables
from mrc_testbed.topologies.lab.switch_counters import P4RuntimeCounts, SwitchCounts
from mrc_testbed.topologies.plan import Plan
from tests.controller.controller_fixture import Rig

PLAN = Plan(planes=1, racks=2, spines=1, hosts_per_rack=1)
CELLS = {"marked": [0], "trimmed": [0, 512], "nothing of ours": [0]}


def count(address, device_id, counter_id, cells):
    """Set cells of a counter, as a controller may."""
    with grpc.insecure_channel(address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        election = U128.encode(99)
        bid = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=election)
        to_say = SimpleQueue()  # the stream has to stay open
        to_say.put(p4r.StreamMessageRequest(arbitration=bid))
        stream = stub.StreamChannel(iter(to_say.get, None))
        next(stream)
        request = p4r.WriteRequest(device_id=device_id, election_id=election)
        for index, packets in cells.items():
            entry = p4r.CounterEntry(
                counter_id=counter_id, index=p4r.Index(index=index), data=p4r.CounterData(packet_count=packets)
            )
            request.updates.add(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=entry))
        stub.Write(request)
        to_say.put(None)


def test_p4runtime__sums_over_ports_and_none_for_what_there_is_not(tmp_path):
    with Rig(tmp_path, PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        rig.stop_controller()
        waiting = {"p0-t0-1-eth1": 3}
        counting = P4RuntimeCounts(PLAN, RunDir(tmp_path), Cables(PLAN), waiting.__getitem__)
        switch_entry = json.loads((tmp_path / "switches.json").read_text())["p0-t0-1"]
        info = text_format.Parse((tmp_path / "program" / "p4info.txtpb").read_text(), p4i.P4Info())
        by_name = {counter.preamble.name.rpartition(".")[2]: counter.preamble.id for counter in info.counters}
        count(
            switch_entry["address"], switch_entry["device_id"], by_name["trimmed"], {1: 4, 2: 5, 3: 100, 513: 7}
        )  # it has ports 1 and 2
        rig.daemon.request("power", name="p0-t1-0", on=False)
        counts = counting.read(CELLS, ["p0-t0-1-eth1"])
        switches = ["p0-t0-0", "p0-t0-1"]
        came = dict.fromkeys(switches, 30)
        counting._cables = SimpleNamespace(came_to=lambda switch: came.get(switch, 0))
        count(switch_entry["address"], switch_entry["device_id"], by_name["forwarded"], {1: 9, 2: 7, 510: 1, 9: 50})
        count(
            switch_entry["address"], switch_entry["device_id"], by_name["drops"], {(10 << 9) + 1: 3, (10 << 9) + 7: 50}
        )
        lost = counting.lost_inside({"p0-t0-1": 4})
        counting.close()
        assert lost == {"p0-t0-0": 30, "p0-t0-1": 30 - 4 - 9 - 7 - 1 - 3}
        zeros = {"marked": [0], "trimmed": [0, 0], "nothing of ours": None}
        assert counts.switches == {
            "p0-t0-0": SwitchCounts(True, zeros, lost=0),
            "p0-t0-1": SwitchCounts(True, {**zeros, "trimmed": [9, 7]}, lost=0),
            "p0-t1-0": SwitchCounts(False),
        }
        assert counts.depths == {"p0-t0-1-eth1": 3 * PLAN.frame_bytes()}
