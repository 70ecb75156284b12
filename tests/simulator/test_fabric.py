"""The virtual fabric whole: times, repeatability, modes, bytes on the wire, workloads."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from mrc_testbed.faults import CorruptFault, LossFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    Nack,
    ReliabilityProbe,
    Sack,
    TransportAck,
)
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes
from mrc_testbed.simulator import (
    UNLIMITED_QUEUES,
    Flow,
    HostProfile,
    LinkProfile,
    ProfileError,
    VirtualFabric,
    incast,
    jain,
    permutation,
    rates_bps,
    run_all,
    scaled_profiles,
)
from mrc_testbed.simulator.host import INNER_BYTES
from mrc_testbed.simulator.switches import MODES
from mrc_testbed.topologies.plan import Plan, PlanError
from tests.repository import ROOT

PLAN = Plan(2, 2, 2, 2)


def fabric_of(plan=PLAN, **options):
    scale = scaled_profiles(plan.planes)
    return VirtualFabric(
        plan, **{"seed": 3, "links": scale.links, "queues": scale.queues, "config": scale.config, **options}
    )


def run_loaded(**options):
    """Run a fabric under everything: incast, marks, trims, losses on two links."""
    fabric = fabric_of(Plan(2, 2, 2, 3), **options)
    flows = incast(fabric, ["h3", "h4", "h5"], "h0", message_bytes=40_000, messages=3)
    flows.append(Flow(fabric, "h1", "h4", message_bytes=5_000, messages=20, depth=4))
    fabric.schedule(0.0, LossFault.on("p0-t0-0 p0-t1-0", rate=0.05))
    fabric.schedule(0.0, LossFault.on("p1-t0-1 h4", pattern="0" * 39 + "1", direction="one_way"))
    assert run_all(fabric, flows, 30.0)
    assert all(flow.intact and not flow.failures for flow in flows)
    return fabric


# ---- times ------------------------------------------------------------------------------------------------


def test_scaled__round_trip_is_what_the_recipe_says():
    scale = scaled_profiles(2, rtt_s=0.010)
    fabric = fabric_of(config=scale.config)
    flow = Flow(fabric, "h0", "h2", message_bytes=scale.config.qp.pmtu_bytes, messages=1)
    fabric.run_until(lambda: flow.done)
    # The Transport ACK (122 B) queues behind the SACK (146 B) on the way back: one SACK's serialisation later at most.
    assert flow.finished_at == pytest.approx(0.010, abs=146 * 8 / 10e6)
    assert flow.qp.requestor.rtt.srtt_s == pytest.approx(0.010, abs=5e-5)


def test_scaled__refuses_a_round_trip_shorter_than_its_serialisation():
    with pytest.raises(ProfileError, match="rtt_s"):
        scaled_profiles(rate_bps=1e6, rtt_s=0.005)


def test_host__receive_time_adds_to_the_round_trip():
    finish_times = []
    for receive_s in (0.0, 0.003):
        fabric = fabric_of(host=HostProfile(receive_s=receive_s))
        flow = Flow(fabric, "h0", "h2", message_bytes=100, messages=1)
        fabric.run_until(lambda flow=flow: flow.done)
        finish_times.append(flow.finished_at)
    assert finish_times[1] - finish_times[0] == pytest.approx(0.006)


@pytest.mark.parametrize("kind", list(INNER_BYTES))
def test_sizes__are_those_of_the_codec(kind):
    samples = {
        Sack: Sack(5, 1, 0, 46, 0, 9, 1, 0, 0, None, 1, 0, 0, 0),
        Nack: Nack(5, 1, 0, 46, 0, 1, 1, 1),
        TransportAck: TransportAck(5, 1, 0, 46, 0, 1, 0x1F, 1),
        ReliabilityProbe: ReliabilityProbe(5, 1, 0, 4, 2, 7),
        EndpointRequest: EndpointRequest(2, 1, 0, 46, 0, 1, 1),
        EndpointResponse: EndpointResponse(2, 1, 0, 46, 0, 1, 1),
        RcAck: RcAck(5, 1, 0, 46, 0, 1, 0x1F, 1),
        Cnp: Cnp(5, 1, 0, 46, 0),
    }
    ends = Addressing(bytes(16), bytes(16))
    assert Codec(Config()).encode(samples[kind], ends).size == INNER_BYTES[kind]


def test_run_until__a_time_a_predicate_and_a_limit():
    fabric = fabric_of()
    fabric.run_until(0.5)
    assert fabric.now == 0.5
    assert not fabric.run_until(lambda: False, limit_s=1.0)
    calls = []
    fabric.schedule(0.75, lambda: calls.append(fabric.now))
    fabric.run_for(1.0)
    assert calls == [0.75]


def test_sample__looks_at_queues_at_regular_times():
    fabric = fabric_of(Plan(2, 2, 2, 3))
    port = fabric.port_towards("p0-t0-0", "h0")
    samples = []
    fabric.sample(0.01, lambda now: samples.append((now, port.data_bytes)), until_s=0.2)
    flows = incast(fabric, ["h3", "h4", "h5"], "h0", message_bytes=40_000, messages=2)
    assert run_all(fabric, flows)
    fabric.run_for(1.0)
    assert len(samples) in (20, 21) and samples[1][0] == 0.01
    assert 0 < max(depth for _, depth in samples) <= port.peak_bytes


# ---- the same again ---------------------------------------------------------------------------------------


def test_seed__repeats_bit_for_bit():
    first, repeated_run, other_seed = (run_loaded(seed=seed, trace=True) for seed in (5, 5, 6))
    assert first.trace_digest() == repeated_run.trace_digest() != other_seed.trace_digest()
    assert first.state_digest() == repeated_run.state_digest() != other_seed.state_digest()
    assert first.tracer.count > 2000


def test_seed__does_not_depend_on_pythons_hash_seed():
    code = "from tests.simulator.test_fabric import run_loaded; print(run_loaded(seed=5, trace=True).trace_digest())"
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    out = [
        subprocess.run(
            [sys.executable, "-c", code], env={**env, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        for seed in ("1", "2")
    ]
    assert out[0].stdout == out[1].stdout != "", out[0].stderr
    assert out[0].stdout.strip() == run_loaded(seed=5, trace=True).trace_digest()


def test_trace__changes_nothing_and_must_be_asked_for():
    plain, traced_run = run_loaded(), run_loaded(trace=True)
    assert plain.state_digest() == traced_run.state_digest()
    with pytest.raises(ValueError, match="trace=True"):
        plain.trace_digest()


def test_trace__hook_sees_every_packet_event():
    counts = Counter()
    fabric = run_loaded(trace=lambda event, now, location, frame: counts.update([event]))
    totals = fabric.totals()
    assert (
        counts["send"] == totals["forwarded"]
        and counts["trim"] == totals["trimmed"]
        and counts["mark"] == totals["marked"]
    )
    assert counts["lose"] == totals["loss"] > 0 and counts["deliver"] == sum(h.received for h in fabric.hosts.values())


# ---- modes and bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_wire__bytes_and_records_give_the_same_run(mode):
    records, on_wire = (run_loaded(mode=mode, wire=wire, trace=True) for wire in (False, True))
    assert records.trace_digest() == on_wire.trace_digest()
    assert records.totals()["trimmed"] > 0


def test_wire__damage_is_found_by_the_codec_and_repaired():
    fabric = fabric_of(wire=True)
    flow = Flow(fabric, "h0", "h2", message_bytes=200_000, messages=2)
    for plane in (0, 1):
        fabric.schedule(0.0, CorruptFault.on(f"p{plane}-t0-0 p{plane}-t1-0", rate=0.05))
    assert run_all(fabric, [flow]) and flow.intact and not flow.failures
    assert fabric.totals()["corrupt"] > 3 and fabric.host("h2").dropped["iCRC"] > 0


def uplinks_used(fabric, flow, plane=0):
    assert run_all(fabric, [flow]) and flow.intact
    t0 = fabric.switches[f"p{plane}-t0-0"]
    return [port.forwarded for port in t0.uplinks]


def test_modes__spread_as_they_say():
    packets_by_mode = {}
    for mode in MODES:
        fabric = fabric_of(Plan(1, 2, 4, 1), mode=mode, queues=UNLIMITED_QUEUES)
        packets_by_mode[mode] = uplinks_used(fabric, Flow(fabric, "h0", "h1", message_bytes=200_000, messages=2))
    assert sum(n > 100 for n in packets_by_mode["flow-ecmp"]) == 1  # EV probes are another flow
    assert all(n > 20 for n in packets_by_mode["ecmp"]) and all(n > 50 for n in packets_by_mode["switch-spray"])
    # One EV in four is a backup (Annex C), and only the plan's EV reaches an uplink in the static modes.
    assert sum(n > 50 for n in packets_by_mode["srv6"]) == sum(n > 50 for n in packets_by_mode["structured"]) == 3


def test_flow_ecmp__another_seed_draws_another_path():
    """Once every seed had the same collisions, and three of them were one experiment."""

    def path(seed: int) -> int:
        fabric = fabric_of(Plan(1, 2, 4, 1), mode="flow-ecmp", seed=seed)
        packets = uplinks_used(fabric, Flow(fabric, "h0", "h1", message_bytes=20_000, messages=1))
        return packets.index(max(packets))

    paths = [path(seed) for seed in range(12)]
    assert len(set(paths)) >= 3 and paths[0] == path(0)


def test_mode__hashing_looks_at_port_state_and_srv6_does_not():
    for mode, avoids in (("switch-spray", True), ("srv6", False)):
        fabric = fabric_of(Plan(1, 2, 2, 1), mode=mode)
        fabric.set_link("p0-t0-0", "p0-t1-0", enabled=False)
        flow = Flow(fabric, "h0", "h1", message_bytes=50_000, messages=1)
        assert run_all(fabric, [flow])
        # (Towards h0 the T1 still drops: to prune what lies behind a T1 is the controller's work.)
        assert (not fabric.port_towards("p0-t0-0", "p0-t1-0").dropped) is avoids


def test_mode__may_be_a_function_and_must_exist():
    fabric = fabric_of(Plan(1, 2, 4, 1), mode=lambda t0, frame: 2)
    assert uplinks_used(fabric, Flow(fabric, "h0", "h1", message_bytes=5_000, messages=1))[2] > 0
    with pytest.raises(ValueError, match="known: srv6"):
        fabric_of(mode="shortest")


def test_srv6__an_ev_that_names_no_path_is_dropped_at_the_first_switch():
    fabric = fabric_of()
    qp, _ = fabric.connect("h0", "h2", evs=(0x0007, 0x0100))  # uplink 7 does not exist
    region = fabric.host("h2").endpoint.register(bytearray(50_000))
    qp.post_write(bytes(50_000), region.va, region.rkey, now=0.0)
    assert fabric.run_until(lambda: not qp.outstanding(), limit_s=20)
    assert fabric.switches["p0-t0-0"].dropped["no_route"] > 0


# ---- workloads --------------------------------------------------------------------------------------------


def test_flow__sees_wrong_bytes():
    fabric = fabric_of()
    flow = Flow(fabric, "h0", "h2", message_bytes=3000, messages=3, depth=1)
    fabric.run_until(lambda: flow.completed == 1)
    flow._bytes = MessageBytes("another", 3000)  # what is sent from now on is not what is expected
    run_all(fabric, [flow])
    assert flow.corrupt == [2] and not flow.intact


def test_flow__sees_what_belongs_to_no_message():
    fabric = fabric_of()
    flow = Flow(fabric, "h0", "h2", message_bytes=3000, messages=2, depth=2)
    run_all(fabric, [flow])
    assert flow.intact
    qp, _ = fabric.connect("h1", "h2")
    qp.post_write(flow._bytes.part(2)[:100], flow.region.va, flow.region.rkey, now=fabric.now)
    assert fabric.run_until(lambda: not qp.outstanding(), limit_s=20)
    assert not flow.intact


def test_permutation__everyone_sends_and_receives_once():
    fabric = fabric_of(Plan(2, 3, 2, 2))
    flows = permutation(fabric, message_bytes=10_000, messages=2)
    names = sorted(host.name for host in fabric.plan.hosts)
    assert sorted(f.a for f in flows) == sorted(f.b for f in flows) == names and all(f.a != f.b for f in flows)
    assert run_all(fabric, flows) and all(f.intact for f in flows)


def test_rates__do_not_exceed_the_ports():
    fabric = fabric_of()
    flows = [Flow(fabric, "h0", "h2", message_bytes=100_000), Flow(fabric, "h1", "h3", message_bytes=100_000)]
    assert all(0 < rate < 2 * 10e6 for rate in rates_bps(fabric, flows, 0.2, 0.5))
    for flow in flows:
        flow.stop()
    assert run_all(fabric, flows)
    assert jain([1, 1, 1]) == 1 and jain([1, 0, 0, 0]) == 0.25


def test_baseline__runs_the_same_workload():
    fabric = fabric_of(wire=True)
    flow = Flow(fabric, "h0", "h2", message_bytes=50_000, messages=3, transport="rocev2")
    assert run_all(fabric, [flow]) and flow.intact
    assert sum(n > 0 for n in flow.qp.counters.plane_packets) == 1


def test_names__are_checked_against_the_plan():
    fabric = fabric_of()
    with pytest.raises(PlanError, match="no host 'h9'"):
        fabric.host("h9")
    with pytest.raises(PlanError):
        Flow(fabric, "h0", "p0-t0-0")


def test_many_hosts__stay_quiet_when_nothing_is_asked():
    fabric = fabric_of(Plan(4, 4, 4, 4), links=LinkProfile.uniform(1e9, 1e-6))
    fabric.run_until(10.0)
    assert fabric.totals()["forwarded"] == 0


def test_docs__the_example_runs(capsys):
    page = (ROOT / "docs" / "virtual.md").read_text()
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert "retransmitted" in capsys.readouterr().out
