"""Traffic settings of BMv2 over Thrift, against a server that speaks as `simple_switch` does."""

import io
import threading
from contextlib import contextmanager

import pytest
from thriftpy2 import load_fp
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TMultiplexedProcessor, TProcessor
from thriftpy2.transport import TBufferedTransportFactory, TServerSocket

from mrc_testbed.topologies.lab.cables import Cables
from mrc_testbed.topologies.lab.traffic_control import Setting, TrafficError, plan_settings
from mrc_testbed.topologies.lab.traffic_control_thrift import ThriftTraffic
from mrc_testbed.topologies.plan import LinkSpeed, Plan

PLAN = Plan(2, 2, 2, 1, host_link=LinkSpeed(10e6, 0.001), fabric_link=LinkSpeed(20e6, 0.0005), pmtu_bytes=1024)

# simple_switch.thrift as BMv2 has it, as far as it matters here: written out again, not taken from what is tested.
SERVER_IDL = """
service SimpleSwitch {
    i32 mirroring_session_delete(1:i32 mirror_id);
    i32 set_egress_priority_queue_depth(1:i32 port_num, 2:i32 priority, 3:i32 depth_pkts);
    i32 set_egress_priority_queue_rate(1:i32 port_num, 2:i32 priority, 3:i64 rate_pps);
}
exception InvalidRegisterOperation {
    1:i32 code
}
service Standard {
    i64 bm_register_read(1:i32 cxt_id, 2:string register_array_name, 3:i32 idx)
        throws (1:InvalidRegisterOperation ouch);
}
"""


class SimpleSwitch:
    """Queues of a simple_switch, as its Thrift calls leave them, and a register."""

    def __init__(self):
        self.rates, self.depths, self.code = {}, {}, 0
        self.waiting = {}

    def bm_register_read(self, cxt_id, register_array_name, idx):
        assert (cxt_id, register_array_name) == (0, "queue_depth")
        return self.waiting.get(idx, 0)

    def set_egress_priority_queue_rate(self, port_num, priority, rate_pps):
        self.rates[port_num, priority] = rate_pps
        return self.code

    def set_egress_priority_queue_depth(self, port_num, priority, depth_pkts):
        self.depths[port_num, priority] = depth_pkts
        return self.code


@contextmanager
def thrift_server():
    """Serve a SimpleSwitch as simple_switch does; yield it and its TCP port.

    Buffered, binary, multiplexed by service name.
    """
    idl = load_fp(io.StringIO(SERVER_IDL), "test_simple_switch_thrift")
    switch, processor = SimpleSwitch(), TMultiplexedProcessor()
    processor.register_processor("simple_switch", TProcessor(idl.SimpleSwitch, switch))
    processor.register_processor("standard", TProcessor(idl.Standard, switch))
    socket = TServerSocket("127.0.0.1", 0)
    socket.listen()
    server = TThreadedServer(
        processor, socket, itrans_factory=TBufferedTransportFactory(), iprot_factory=TBinaryProtocolFactory()
    )
    server.daemon = True

    # Not the server's own loop, which logs an error when closing the socket ends its accept().
    def serve():
        while not server.closed:
            try:
                client = socket.accept()
            except OSError:
                return
            threading.Thread(target=server.handle, args=(client,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield switch, socket.sock.getsockname()[1]
    finally:
        server.closed = True
        socket.close()


@pytest.fixture
def bmv2():
    with thrift_server() as (switch, port):
        control = ThriftTraffic(PLAN, lambda _device_id: ("127.0.0.1", port), Cables(PLAN))
        yield switch, control
        control.close()


def test_thrift__a_rate_is_set_for_each_priority_in_packets(bmv2):
    switch, control = bmv2
    control.set_rate("p0-t0-0-eth2", 10e6)
    data = dict.fromkeys(((2, priority) for priority in range(7)), 1072)  # 10 Mb/s / 8 / 1166 bytes
    assert switch.rates == data | {(2, 7): 9058}, "trimmed frames have 138 bytes"
    assert control.rate_note(10e6) == "as 1,072 packets/s of 1166 bytes, for BMv2 counts packets"
    assert control.read("p0-t0-0-eth2").rate_bps == 10_000_000
    control.set_rate("p0-t0-0-eth2", 1e6, priority=0)
    assert switch.rates[2, 0] == 107 and switch.rates[2, 6] == 1072
    control.set_rate("p0-t0-0-eth2", priority=0)
    control.set_rate("p0-t0-0-eth2", pps=500)
    assert switch.rates == {(2, priority): 500 for priority in range(8)}
    control.set_rate("p0-t0-0-eth2")
    assert set(switch.rates.values()) == {0}  # no limit


def test_thrift__depths_in_packets(bmv2):
    switch, control = bmv2
    control.set_depth("p0-t0-0-eth1", 30)
    control.set_depth("p0-t0-0-eth1", 90, priority=7)
    assert switch.depths == {(1, 0): 30, (1, 7): 90} and switch.rates == {}
    assert [queue.max_packets for queue in control.queues("p0-t0-0-eth1")] == [
        30,
        None,
        None,
        None,
        None,
        None,
        None,
        90,
    ]
    control.set_depth("p0-t0-0-eth1")
    assert switch.depths[1, 0] == 64


def test_thrift__what_waits_is_in_the_programs_register(bmv2):
    switch, control = bmv2
    switch.waiting = {2: 5}
    queues = control.read("p0-t0-0-eth2").queues
    assert (queues[0].depth_packets, queues[0].depth_bytes, queues[7].depth_packets) == (5, 5 * 1166, 0)
    assert control.depth_packets("p0-t0-0-eth1") == 0
    with pytest.raises(TrafficError, match="no switch port"):
        control.depth_packets("h0-eth0")


def test_thrift__a_black_hole_has_queues_without_room(bmv2):
    """Packets go into the switch and do not come out, and no figure of the plan is lost over it."""
    switch, control = bmv2
    control.set_depth("p0-t0-0-eth1", 30)
    control.apply(control.black_hole(["p0-t0-0-eth1"]))
    assert switch.depths == {(1, priority): 0 for priority in range(8)}
    control.set_depth("p0-t0-0-eth1", 40)
    assert switch.depths[1, 0] == 0, "still a black hole"
    control.on_switch_restart("p0-t0-0")
    assert set(switch.depths.values()) == {0}, "and after a reboot"
    control.apply([Setting("p0-t0-0-eth1", "swallow", 0)])
    assert switch.depths == {(1, priority): 40 if priority == 0 else 64 for priority in range(8)}


def test_thrift__what_bmv2_cannot_do_is_said_and_nothing_is_done(bmv2):
    switch, control = bmv2
    for attempt, error in [
        (lambda: control.set_delay("p0-t0-0-eth1", 0.001), "BMv2 cannot delay packets; it can limit rates"),
        (lambda: control.set_depth("p0-t0-0-eth1", 5, size=9000), "cannot limit a queue in bytes"),
    ]:
        with pytest.raises(TrafficError, match=error):
            attempt()
    assert switch.rates == switch.depths == {}
    assert control.apply_plan() == [
        "BMv2 cannot delay packets; it can limit rates in packets/s and queue depths in packets, its cables can lose "
        "and corrupt packets, and --target embedded can do all of it",
        "10 Mb/s as 1,072 packets/s of 1166 bytes, for BMv2 counts packets",
        "20 Mb/s as 2,144 packets/s of 1166 bytes, for BMv2 counts packets",
    ]
    assert control.read("p0-t0-0-eth1").rate_bps == 10_000_000 and set(switch.rates.values()) <= {
        1072,
        2144,
        9058,
        18116,
    }
    control.set_delay("p0-t0-0-eth1", 0)  # what is not there can be taken away


def test_thrift__plan_without_delays_is_applied_whole(bmv2):
    switch, _ = bmv2
    plan = Plan(1, 1, 1, 1, host_link=LinkSpeed(10e6), fabric_link=LinkSpeed(20e6), pmtu_bytes=1024)
    control = ThriftTraffic(plan, bmv2[1]._address, Cables(plan))
    control.apply(plan_settings(plan, plan.ports("p0-t0-0")))
    assert [switch.rates[port, 0] for port in (1, 2)] == [1072, 2144]
    assert switch.depths[1, 0] == plan.thresholds("p0-t0-0", 1).data_limit
    old_settings = (dict(switch.rates), dict(switch.depths))
    switch.rates.clear(), switch.depths.clear()
    control.on_switch_restart("p0-t0-0")
    assert (switch.rates, switch.depths) == old_settings
    control.set_rate("p0-t0-0-eth1", 1e6)
    assert switch.rates[1, 3] == 107 and "p0-t0-0-eth1" in control.touched_interfaces
    control.reset()
    assert (switch.rates, switch.depths) == old_settings and not control.touched_interfaces


def test_thrift__a_switch_that_refuses_or_is_not_there_is_named(bmv2):
    switch, control = bmv2
    switch.code = 1
    with pytest.raises(
        TrafficError, match=r"p0-t0-0: simple_switch refused set_egress_priority_queue_rate\(1, 0, 1072\)"
    ):
        control.set_rate("p0-t0-0-eth1", 10e6)
    with pytest.raises(TrafficError, match=r"p1-t1-1: its Thrift server at 127.0.0.1:1 does not answer"):
        ThriftTraffic(PLAN, lambda _id: ("127.0.0.1", 1), Cables(PLAN)).set_rate("p1-t1-1-eth1", 10e6)


@pytest.mark.parametrize(
    "attempt, error",
    [
        (lambda c: c.set_rate("p0-t0-0-eth9", 1e6), "no switch port 'p0-t0-0-eth9' (did you mean p0-t0-0-eth"),
        (lambda c: c.set_rate("h0-eth0", 1e6), "no switch port 'h0-eth0'"),
        (lambda c: c.set_rate("p0-t0-0-eth1", 0), "rate_bps = 0: give 1 or more, or None"),
        (lambda c: c.set_rate("p0-t0-0-eth1", "10M"), "rate_bps = '10M'"),
        (lambda c: c.set_rate("p0-t0-0-eth1", 1e6, priority=8), "priority 8: a port has queues 0 to 7"),
        (lambda c: c.set_depth("p0-t0-0-eth1", -1), "packets = -1"),
        (lambda c: c.set_loss("p0-t0-0-eth1", 1.5), "probability 1.5: give a number from 0 to 1"),
        (lambda c: c.set_loss("p0-t0-0-eth1", pattern="0x1"), "pattern '0x1': give 0s and 1s"),
        (lambda c: c.set_loss("p0-t0-0-eth1", 0.1, seed=-1), "seed -1"),
        (lambda c: c.set_loss("p0-t0-0-eth1", 0.1, direction="both"), "direction 'both': give input or output"),
        (lambda c: c.set_delay("p0-t0-0-eth1", float("nan")), "delay_s = nan: give 0 to 60"),
    ],
)
def test_any_control__refuses_by_name(attempt, error):
    class Recorder(ThriftTraffic):
        def _call(self, *call):
            raise AssertionError(f"reached the switch: {call}")

    with pytest.raises(TrafficError) as caught:
        attempt(Recorder(PLAN, lambda _id: ("127.0.0.1", 1), Cables(PLAN)))
    assert error in str(caught.value)
