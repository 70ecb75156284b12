"""Hops and hosts in C (simulator/hops.c, host.c) do what switches.py, ports.py and host.py say.

Random fabrics, traffic and faults run in both forms. Nothing observes the ports, since an observed port does without
the C. Stand-ins for half of the engines, whose hosts do without it too, note every packet that arrives, with its time.
The states of ports and hosts are compared in the midst of each run and at its end.
"""

import json

import pytest

from tests.machine_code import needs_compiler
from tests.native_build.test_modules_both_forms import run

FABRICS = 60
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.build,
    pytest.mark.timeout(1200),
    needs_compiler,
]

PROGRAM = """
import json, sys
from dataclasses import replace
from hashlib import blake2b
from importlib import import_module
from random import Random
from mrc_testbed import native_build
from mrc_testbed.faults import (BlackholeFault, CorruptFault, CutFault, DuplicateFault, LateFault, LineFault, LossFault,
    RebootFault, SilentFault, StallFault)
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator import Flow, HostProfile, LinkProfile, VirtualFabric, incast, permutation, scaled_profiles
from mrc_testbed.simulator.profiles import Line, PfcProfile
from mrc_testbed.topologies.plan import Plan

END_S = 0.15

class Watch:
    "An engine whose arrivals are noted."

    def __init__(self, host, digest):
        self.host, self.engine, self.digest = host, host.endpoint, digest
        host.engine = self

    def receive(self, packet, plane, peer, now):
        psn = getattr(packet, "psn", getattr(packet, "cack_psn", None))
        kind = type(packet).__name__
        self.digest.update(repr((self.host.name, now, plane, peer, kind, psn, packet.ecn, packet.ev)).encode())
        self.engine.receive(packet, plane, peer, now)

    def __getattr__(self, name):
        return getattr(self.engine, name)

def profiles(rng, plan):
    "Queues from empty to dropping, links from equal to slower in the middle."
    trim, ecn = rng.random() < 0.7, rng.random() < 0.7
    changes = {}
    if rng.random() < 0.3:
        changes = {"data_packets": rng.randint(2, 30), "control_packets": rng.randint(2, 30)}
    keys = {"trimmed_queue": "medium"} if rng.random() < 0.2 else {}
    rate = rng.choice((10e6, 40e6, 100e6))
    scale = scaled_profiles(plan.planes, rate_bps=rate, rtt_s=rng.choice((0.006, 0.01)), ecn=ecn, trim=trim,
                            cc=rng.choice(("uet-1.0-nscc", "fixed")), queues=changes, config=keys)
    line = scale.links.nic
    jitter = line.delay_s / 3 if rng.random() < 0.3 else 0.0
    middle = Line(rate * rng.choice((1, 1, 0.25)), line.delay_s, jitter, rng.random() < 0.8)
    return scale, LinkProfile(replace(line, jitter_s=jitter), middle)

def fault(rng, plan):
    "A fault of any kind at any link or switch."
    plane, rack, host = rng.randrange(plan.planes), rng.randrange(plan.racks), rng.randrange(len(plan.hosts))
    t0, t1 = f"p{plane}-t0-{rack}", f"p{plane}-t1-{rng.randrange(plan.spines)}"
    ends = f"{t0} {t1}" if rng.random() < 0.6 else f"h{host} p{plane}-t0-{plan.hosts[host].rack}"
    rate = rng.choice((0.01, 0.1, 1.0))
    return rng.choice((
        lambda: CutFault.on(ends), lambda: SilentFault.on(ends), lambda: LossFault.on(ends, rate=rate),
        lambda: CorruptFault.on(ends, rate=rate), lambda: DuplicateFault.on(ends, rate=rate),
        lambda: LateFault.on(ends, rate=rate, seconds=0.004), lambda: LineFault.on(ends, rate=2e6, jitter=0.001),
        lambda: BlackholeFault.on(rng.choice((t0, t1))), lambda: StallFault.on(rng.choice((t0, t1)), seconds=0.01),
        lambda: StallFault.on(f"h{host}", seconds=0.01), lambda: RebootFault.on(rng.choice((t0, t1)), off=0.02),
    ))()

def result(seed):
    rng = Random(seed)
    plan = Plan(rng.randint(1, 3), rng.randint(2, 3), rng.randint(1, 3), rng.randint(1, 3))
    scale, links = profiles(rng, plan)
    rocev2 = rng.random() < 0.15
    queues = scale.queues
    if rocev2 and rng.random() < 0.5:
        bdp = scale.bdp_bytes
        pfc = PfcProfile(xoff_bytes=bdp, xon_bytes=3 * bdp // 4, headroom_bytes=bdp, storm_after_s=0.2)
        queues = replace(queues, pfc=pfc, trim_bytes=None, trim_lasthop_bytes=None)
    mode = "flow-ecmp" if rocev2 else rng.choice(("srv6", "srv6", "srv6", "structured", "ecmp", "switch-spray"))
    fabric = VirtualFabric(
        plan, seed=seed, links=links, queues=queues, config=scale.config, mode=mode, lookahead=rng.randrange(3),
        host=HostProfile(ring_packets=rng.choice((1, 4, 16)), receive_s=rng.choice((0.0, 1e-5)), port_event_s=1e-4),
        wire=rng.random() < 0.1 and not rocev2,
    )
    digest = blake2b(digest_size=16)
    watches = [Watch(host, digest) for host in fabric.hosts.values() if rng.random() < 0.5]
    options = {"transport": "rocev2", "settings": RcConfig(timeout=14)} if rocev2 else {}
    names = list(fabric.hosts)
    size = {"message_bytes": rng.choice((3000, 40_000)), "messages": rng.choice((3, 30)), "depth": rng.randint(1, 4)}
    flows = incast(fabric, names[1:], names[0], **size, **options)
    if rng.random() < 0.7:
        flows += permutation(fabric, **size, **options)
    for _ in range(rng.choice((0, 0, 1, 3))):
        begin = rng.random() * END_S / 2
        fabric.schedule(begin, fault(rng, plan), until_s=begin + rng.random() * END_S / 2)
    fabric.sample(END_S / 8, lambda now: digest.update(fabric.state_digest().encode()))
    fabric.run_until(END_S)
    totals = fabric.totals()
    out = [digest.hexdigest(), fabric.state_digest(), fabric.events_done, sum(flow.completed for flow in flows), totals]
    fabric.close()
    return out

active = native_build.state().active
results = [result(seed) for seed in range(*map(int, sys.argv[1:3]))]
event_counts = import_module("mrc_testbed.simulator.event_queue").handled_events() if active else None
print(json.dumps({"active": active, "event_counts": event_counts, "results": results}))
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    run(["-m", "mrc_testbed", "compile"])


def test_random_fabrics__have_the_same_arrivals_and_counters_in_both_forms():
    span = ["0", str(FABRICS)]
    native = json.loads(run(["-c", PROGRAM, *span]))
    python = json.loads(run(["-c", PROGRAM, *span], MRC_COMPILED="0"))
    assert (native["active"], python["active"]) == (True, False)
    for seed, (of_c, of_python) in enumerate(zip(native["results"], python["results"], strict=True)):
        assert of_c == of_python, f"seed {seed}"
    events = sum(result[2] for result in native["results"])
    hops, of_hosts = native["event_counts"]
    assert hops > events / 4, "hardly any hop was one in C"
    assert of_hosts > events / 20, "hardly any event of a host was one in C"
    reasons = {reason for result in native["results"] for reason, count in result[4].items() if count}
    assert {"forwarded", "marked", "trimmed", "queue_full", "blackhole", "cut", "loss", "link_down"} <= reasons
