"""`mrc bench transport`: figures of the transport beside their targets, on the virtual-time fabric.

The unchanged engines run over the model of simulator at the scale of §11.4 (10 Mb/s a port, 10 ms round
trip, PMTU 1024, thresholds from the BDP, NSCC). All is virtual time from fixed seeds: the numbers do not depend on the
machine, and are the same in every run. Rates are of payload, as a share of what the bottleneck's bits leave for payload
in full packets; delays are in round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.faults import LossFault, OneWayFault
from mrc_testbed.hosts.engine.events import EvChanged, PacketLost
from mrc_testbed.simulator import Flow, Scale, VirtualFabric, incast, jain, rates_bps, run_all, scaled_profiles
from mrc_testbed.topologies.plan import Plan, ev_uplink

SCHEMA = "mrc-bench-transport/1"
PLAN = Plan(planes=4, racks=2, spines=4, hosts_per_rack=1)
INCAST_PLAN = Plan(planes=4, racks=2, spines=8, hosts_per_rack=8)
SEEDS = 16
LOSS_RATE = 0.01
PIPES = (("pipe of 43 packets", 40e6), ("pipe of 86 packets", 80e6), ("pipe of 240 packets", 224e6))
"""Host rates by the packets that fit one round trip of 10 ms.

The recipe (§11.4) is to keep the number of packets per BDP, that of 800 Gb/s x 10 us or 1 MB. In jumbo frames, which
MRC sends, it comes to some 100: the second. RoCE's packets hold 4 KiB at most, so that its pipe is 1 MB / 4 KiB = 244
of them: the third. The first is half the second.
"""
ROCE_PIPE_BPS = PIPES[-1][1]
CROWDS = (2, 8, 16, 64)
FABRICS: dict[str, dict[str, Any]] = {
    "trims": {},
    "last hop marks": {"queues": {"last_hop_ecn": True}},
    "no marks": {"ecn": False},
    "drops": {"trim": False},
    "fixed windows": {"cc": "fixed"},
}
MICROSECONDS = {
    "timeout": 9,
    "ts_unit_s": 8e-9,
    "probe_interval_s": 2e-4,
    "probe_timeout_s": 1e-4,
    "reverse_probe_s": 1e-5,
    "skip_timer_s": 1e-5,
}
"""Timers of the engine for a round trip of 10 us."""


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the result: one number with its target.

    `target` reads `>= 0.96`, `<= 2`, `= 1`, or is empty when the number only explains another.
    """

    group: str
    what: str
    value: float
    target: str = ""
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if not self.target:
            return None
        comparison, limit = self.target.split()
        return {
            ">=": self.value >= float(limit),
            "<=": self.value <= float(limit),
            "<": self.value < float(limit),
            "=": self.value == float(limit),
        }[comparison]


def make(seed: int, plan: Plan = PLAN, **options: Any) -> tuple[Scale, VirtualFabric]:
    """A fabric at the scale of §11.4."""
    scale = scaled_profiles(plan.planes, **options)
    return scale, VirtualFabric(plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config)


# ---- one lost packet --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Single:
    retransmitted: int
    later_rtts: float
    """Delay of the write's completion against that without the loss."""
    tail: bool
    """Whether no younger packet used the same path, or the timer had to find the loss."""


def _lose_one(seed: int, packets: int) -> _Single | None:
    """Run one write of `packets` packets that loses one in the fabric; None when no packet was hit.

    Each packet has its own SACK here (Annex C: so in functional tests), for coalescing would add its own delay.
    """
    dice = Random(f"single/{seed}")
    plane, uplink, number = dice.randrange(4), dice.randrange(4), dice.randrange(packets // 12)
    flows = []
    for lose in (False, True):
        scale, fabric = make(seed, config={"sack_threshold_bytes": 1})
        flow = Flow(fabric, "h0", "h1", message_bytes=packets * scale.config.qp.pmtu_bytes, messages=1, depth=1)
        if lose:
            link = f"p{plane}-t0-0 p{plane}-t1-{uplink}"
            fabric.apply(LossFault.on(link, packets=(number,), only="data", direction="one_way"))
        run_all(fabric, [flow])
        flows.append(flow)
    losses = [e for e in flows[1].fabric.host("h0").events if isinstance(e, PacketLost)]
    if not flows[1].fabric.totals().get("loss"):
        return None
    later = (flows[1].duration_s - flows[0].duration_s) / scale.rtt_s
    tail = not losses or any(e.cause.name != "OVERTAKEN" for e in losses)
    return _Single(flows[1].qp.counters.retransmitted, later, tail)


def single_loss() -> Iterator[Row]:
    """A lost packet with younger ones behind it costs one retransmission, and at most a round trip."""
    group = "single loss"
    runs = [run for run in (_lose_one(seed, 100) for seed in range(4 * SEEDS)) if run is not None]
    body = [run for run in runs if not run.tail]
    yield Row(group, "runs, younger packets behind the lost one", len(body))
    yield Row(group, "retransmissions, fewest", min(r.retransmitted for r in body), "= 1")
    yield Row(group, "retransmissions, most", max(r.retransmitted for r in body), "= 1")
    yield Row(group, "the write is later by, most", max(r.later_rtts for r in body), "<= 1.1", "RTT")
    yield Row(group, "the write is later by, median", median(r.later_rtts for r in body), "", "RTT")
    tails = [run for run in runs if run.tail]
    if tails:
        timeout = scaled_profiles(4).config.loss.base_timeout_s / 0.010
        yield Row(group, "the last of its path: runs", len(tails))
        yield Row(
            group,
            "the last of its path: later by, most",
            max(r.later_rtts for r in tails),
            f"<= {timeout + 1:.1f}",
            "RTT",
        )


# ---- rates ------------------------------------------------------------------------------------------------


def large_writes() -> Iterator[Row]:
    """Writes of 1 MiB fill the bottleneck: the ports of the host, and uplinks that two hosts share."""
    group = "large writes"
    scale, fabric = make(1)
    rate = rates_bps(fabric, [Flow(fabric, "h0", "h1", message_bytes=1 << 20)], 0.5, 3.0)[0]
    yield Row(group, "share of the NIC's rate", rate / _payload_bps(scale), ">= 0.96")
    scale, fabric = make(1, Plan(planes=4, racks=2, spines=1, hosts_per_rack=2))
    flows = [Flow(fabric, f"h{i}", f"h{i + 2}", message_bytes=1 << 20) for i in range(2)]
    rates = rates_bps(fabric, flows, 1.0, 3.0)
    yield Row(group, "share of uplinks used by two hosts", sum(rates) / _payload_bps(scale), ">= 0.96")
    yield Row(group, "Jain index of the two", jain(rates))


def _payload_bps(scale: Scale) -> float:
    """Payload rate of all planes of a host."""
    return scale.planes * scale.rate_bps * scale.payload_share


def incast_and_victim() -> Iterator[Row]:
    """Seven hosts of one rack send to one host of the other; the eighth to the neighbour of their target.

    NSCC cuts on marks with delay, and unmarked delay makes it grow. Last hops mark as UET has it; or they trim and
    never mark, strict MRC (§4.4), and receivers say with a penalty what the marks do not (nscc.md §4.3).
    """
    yield from _incast("7-to-1 incast, last hop marks", True)
    yield from _incast("the same, last hop trims only", False)


def _incast(group: str, last_hop_ecn: bool) -> Iterator[Row]:
    rates, lone_rates, trims, drops = [], [], 0, 0
    queues = {"last_hop_ecn": last_hop_ecn}
    for seed in (1, 2, 3):
        scale, fabric = make(seed, INCAST_PLAN, queues=queues)
        lone_rates += rates_bps(fabric, [Flow(fabric, "h15", "h1", message_bytes=1 << 20)], 0.3, 0.7)
        scale, fabric = make(seed, INCAST_PLAN, queues=queues)
        flows = incast(fabric, [f"h{i}" for i in range(8, 15)], "h0", message_bytes=1 << 20)
        flows.append(Flow(fabric, "h15", "h1", message_bytes=1 << 20))
        rates.append(rates_bps(fabric, flows, 1.0, 2.0))
        trims += fabric.totals()["trimmed"]
        drops += sum(sum(port.dropped.values()) for port in fabric.ports.values())
    yield Row(group, "Jain index of the seven, worst of 3 seeds", min(jain(run[:-1]) for run in rates), ">= 0.98")
    victim = min(run[-1] / lone_rate for run, lone_rate in zip(rates, lone_rates, strict=True))
    yield Row(group, "victim, share of its rate alone, worst", victim, ">= 0.95")
    yield Row(group, "share of the target's rate used, worst", min(sum(r[:-1]) for r in rates) / _payload_bps(scale))
    yield Row(group, "packets trimmed", trims)
    yield Row(group, "dropped silently by switches", drops, "= 0")


def crowds() -> Iterator[Row]:
    """Yield the rows of N-to-1 incasts: a plane whose pipe holds ten packets; 1 MB each at 100 Gb/s.

    The round trip of the latter takes 10 us.

    The second is what the reference simulator of UEC's congestion control is run with (docs/congestion.md).
    """
    group = "N-to-1 incast, a pipe of ten packets"
    for senders in CROWDS:
        for name, options in FABRICS.items():
            if name == "fixed windows" and senders == 2:  # they fit pipe and queue, unless both are trimmed thrice
                continue
            scale, fabric, names = _crowd(senders, **options)
            flows = incast(fabric, names, "h0", message_bytes=1 << 16)
            # 64 senders have some 120 packets each in eight seconds; in less their number alone makes shares uneven
            rates = rates_bps(fabric, flows, max(1.5, senders / 32), max(2.5, senders / 8))
            yield Row(group, f"{senders}, {name}: share used", sum(rates) / _payload_bps(scale), ">= 0.95")
            yield Row(group, f"{senders}, {name}: Jain index", jain(rates), ">= 0.95")
            yield Row(group, f"{senders}, {name}: QPs that died", sum(bool(flow.failures) for flow in flows), "= 0")
    group = "N-to-1 incast, many QPs of each of 8 hosts"
    for qps in (16, 64):
        scale, fabric, names = _crowd(8)
        flows = [flow for _ in range(qps) for flow in incast(fabric, names, "h0", message_bytes=1 << 16)]
        rates = rates_bps(fabric, flows, 1.5, 2.5)
        yield Row(group, f"{qps} QPs: share used", sum(rates) / _payload_bps(scale), ">= 0.95")
        hosts = [sum(rates[number :: len(names)]) for number in range(len(names))]
        yield Row(group, f"{qps} QPs: Jain index of the hosts", jain(hosts), ">= 0.95")
        yield Row(group, f"{qps} QPs: QPs that died", sum(bool(flow.failures) for flow in flows), "= 0")
    group = "N-to-1 incast of 1 MB each, 100 Gb/s, 10 us"
    for senders in (8, 16, 32, 63):
        scale, fabric, names = _crowd(senders, rate_bps=100e9, rtt_s=10e-6, pmtu_bytes=4096, config=MICROSECONDS)
        flows = incast(fabric, names, "h0", message_bytes=1_000_000, messages=1, depth=1)
        run_all(fabric, flows, limit_s=0.1)
        last = max(flow.duration_s for flow in flows)
        yield Row(group, f"{senders}: all over after", last * 1e6, "", "us")
        yield Row(group, f"{senders}: share used", senders * 8e6 / last / _payload_bps(scale), ">= 0.88")


def _crowd(senders: int, **options: Any) -> tuple[Scale, VirtualFabric, list[str]]:
    """A fabric of one plane, and the names of so many hosts outside the first rack."""
    scale, fabric = make(1, Plan(1, 1 + -(-senders // 8), 8, 8), **options)
    return scale, fabric, [f"h{8 + number}" for number in range(senders)]


def random_loss() -> Iterator[Row]:
    """Yield the rows of 1 % loss at the receiving side of all NICs, each transport beside itself lossless.

    The baseline has one port as fast as MRC's four together, for one path is all it can use. Go-Back-N sends a pipe
    again for each packet lost, so its share is about 1 / (1 + loss x packets in the pipe): under 0.3 from 233 packets
    on. It is judged where the scaling recipe puts it, at the BDP of a real fabric in RoCE's own packets.
    """
    group = "1 % random loss"
    for name, rate in PIPES:
        for transport, planes, target in (("mrc", 4, ">= 0.8"), ("rocev2", 1, "< 0.3")):
            shares = []
            for loss in (0.0, LOSS_RATE):
                plan = Plan(planes=planes, racks=2, spines=4, hosts_per_rack=1)
                _, fabric = make(1, plan, rate_bps=rate / planes)
                flow = Flow(fabric, "h0", "h1", message_bytes=1 << 20, transport=transport)
                for plane in range(planes if loss else 0):
                    for host in (0, 1):
                        fabric.apply(LossFault.on(f"p{plane}-t0-{host} h{host}", rate=loss, direction="one_way"))
                shares += rates_bps(fabric, [flow], 0.5, 4.0)
            word = "MRC" if transport == "mrc" else "Go-Back-N"
            deep = transport == "mrc" or rate == ROCE_PIPE_BPS
            yield Row(group, f"{word}, {name}: share kept", shares[1] / shares[0], target if deep else "")
        packets = int(name.split()[2])
        yield Row(group, f"by arithmetic, {name}: share kept", 1 / (1 + LOSS_RATE * packets))


# ---- a dead path ------------------------------------------------------------------------------------------


def dead_path() -> Iterator[Row]:
    """Yield the rows of a T0-T1 link that swallows all packets, unannounced.

    Times are from the first SACK that is missing to the EV's end.
    """
    group = "dead path"
    busy_times = [recovery_s for seed in range(SEEDS) if (recovery_s := _cut_path(seed, 1 << 20, 2)) is not None]
    yield Row(group, "busy sender: runs", len(busy_times))
    yield Row(group, "busy sender: out of use after, most", max(busy_times), "<= 2", "RTT")
    yield Row(group, "busy sender: out of use after, median", median(busy_times), "", "RTT")
    small_times = [recovery_s for seed in range(SEEDS) if (recovery_s := _cut_path(seed, 1024, 200)) is not None]
    yield Row(group, "busy, writes of one packet: after, most", max(small_times), "<= 2", "RTT")
    calm_times = [recovery_s for seed in range(SEEDS) if (recovery_s := _cut_calm(seed)) is not None]
    yield Row(group, "half-busy sender: out of use after, most", max(calm_times), "<= 2", "RTT")
    lone = [run for seed in range(SEEDS) if (run := _one_at_a_time(seed)) is not None]
    yield Row(group, "one at a time: runs", len(lone))
    yield Row(group, "one at a time: lost to it, most", max(run.lost for run in lone), "", "packets")
    yield Row(group, "one at a time: last sent over it, most", max(run.last_use for run in lone), "<= 1", "timeouts")
    yield Row(
        group, "one at a time: EV event after it was sent, most", max(run.event for run in lone), "<= 1", "timeouts"
    )


def _cut_path(seed: int, message_bytes: int, depth: int) -> float | None:
    """Round trips of the flow, as it measured them at the cut; None when the path was not in use."""
    _, fabric = make(seed)
    flow = Flow(fabric, "h0", "h1", message_bytes=message_bytes, depth=depth)
    rtt = [0.0]

    def measure() -> None:
        rtt.append(flow.qp.requestor.rtt.srtt_s or 0.0)

    fabric.schedule(0.3, measure)
    fabric.schedule(0.3, OneWayFault.on("p1-t0-0 p1-t1-2"))
    fabric.run_until(0.6)
    return _out_of_use(fabric, 1, 2, rtt[-1])


def _cut_calm(seed: int) -> float | None:
    """Return `_cut_path` for four packets every 2 ms, 16 of the 40 Mb/s.

    A window of younger packets takes long to come.
    """
    scale, fabric = make(seed)
    size = 4 * scale.config.qp.pmtu_bytes
    flow = Flow(fabric, "h0", "h1", message_bytes=size, messages=0)
    data, region = bytes(size), flow.region

    def post() -> None:
        flow.qp.post_write(data, region.va, region.rkey, now=fabric.now)
        fabric.schedule(fabric.now + 0.002, post)

    fabric.schedule(0.0, post)
    fabric.schedule(0.3, OneWayFault.on("p1-t0-0 p1-t1-2"))
    fabric.run_until(0.6)
    return _out_of_use(fabric, 1, 2, scale.rtt_s)


def _out_of_use(fabric: VirtualFabric, plane: int, uplink: int, rtt_s: float) -> float | None:
    events = fabric.host("h0").events
    change_times = [e.at for e in events if isinstance(e, EvChanged) and (e.plane, ev_uplink(e.ev)) == (plane, uplink)]
    sent = [e.sent_at for e in events if isinstance(e, PacketLost) and (e.plane, ev_uplink(e.ev)) == (plane, uplink)]
    return (min(change_times) - min(sent)) / rtt_s - 1 if change_times and sent else None


@dataclass(slots=True)
class _Lone:
    """Times in timeouts."""

    lost: int
    last_use: float
    """Time from the first missing SACK to the last packet over the path; a path given up before counts 0."""
    event: float
    """Time from the first lost packet's transmission until its EV is out of use."""


def _one_at_a_time(seed: int) -> _Lone | None:
    """Run a sender that waits for each small write before the next: no younger packet follows a lost one."""
    scale, fabric = make(seed)
    Flow(fabric, "h0", "h1", message_bytes=100, messages=150, depth=1)
    fabric.schedule(0.3, OneWayFault.on("p1-t0-0 p1-t1-2"))
    fabric.run_until(3.0)
    events = fabric.host("h0").events
    sent = [e.sent_at for e in events if isinstance(e, PacketLost)]
    change_times = [e.at for e in events if isinstance(e, EvChanged)]
    if not sent:
        return None
    missing_since, timeout = min(sent) + scale.rtt_s, scale.config.loss.base_timeout_s
    event = round((min(change_times) - min(sent)) / timeout, 6) if change_times else float("inf")
    return _Lone(len(sent), max(0.0, (max(sent) - missing_since) / timeout), event)


# ---- all together -----------------------------------------------------------------------------------------

GROUPS: tuple[Callable[[], Iterator[Row]], ...] = (
    single_loss,
    large_writes,
    incast_and_victim,
    crowds,
    random_loss,
    dead_path,
)


def run(console: Console) -> dict[str, Any]:
    """Measure and print all numbers; return them as schema `mrc-bench-transport/1`.

    `met` is true when every target is met.
    """
    began = process_time()
    rows: list[Row] = []
    table = Table("what", "value", "target", "", box=None, padding=(0, 1))
    with Progress(console, "bench transport", guess_s=240.0) as progress:
        for group in GROUPS:
            progress.step(group.__name__.replace("_", " "), quiet=True)
            rows += group()
    for number, row in enumerate(rows):
        if not number or rows[number - 1].group != row.group:
            table.add_row(f"[bold]{row.group}[/]")
        mark = {None: "", True: "met", False: "[bold red]MISSED[/]"}[row.met]
        table.add_row(f"  {row.what}", f"{row.value:.4g} {row.unit}", row.target, mark)
    console.print(table)
    missed_count = sum(row.met is False for row in rows)
    console.print(
        f"{missed_count} targets missed; {process_time() - began:.0f} s of CPU, virtual time from fixed seeds"
    )
    return {
        "schema": SCHEMA,
        "rows": [{**asdict(row), "met": row.met} for row in rows],
        "met": not missed_count,
    }
