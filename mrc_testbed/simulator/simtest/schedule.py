"""Schedule of one simulated run: a record of plain values, drawn, stored as JSON, shrunk.

A seed decides the draw; shrinking goes piece by piece.

Times are seconds of virtual time from the start. Links are named as in the Mininet CLI (`p0-t0-0 p0-t1-1`), switches
and hosts by their names in the plan. Everything here is data: run.py gives it meaning.

Design note: SimFault is a record beside the classes of faults/kinds.py and applies nothing: run.MEANINGS builds the
class from it, and the class acts on the fabric. The record keeps kind names of its own because stored schedules and the
draws of seeds contain them, 5 kinds are no faults of a network (restart, destroy, three orders), and 2 pairs mean one
class (link_down and port_down, loss and pattern): the mapping to kinds.py would be no shorter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from random import Random
from typing import Any

from mrc_testbed.faults import ALL_SWITCHES
from mrc_testbed.hosts.engine.config import KEYS, Config, ConfigError
from mrc_testbed.topologies.plan import Plan, PlanError

FAULTS = (
    "link_down",
    "one_way",
    "loss",
    "pattern",
    "corrupt",
    "blackhole",
    "flap",
    "switch_off",
    "port_down",
    "delay",
    "reorder",
    "duplicate",
    "late",
    "stall",
    "vanish",
    "restart",
    "destroy",
    "deny",
    "shrink_mpr",
    "penalty",
)
ENDING = tuple(kind for kind in FAULTS if kind not in ("vanish", "restart", "destroy"))
"""Kinds of faults that may happen to any schedule, and end."""
LATE_ONE_IN = 10
KINDS = {
    "calm": 12, "stalled": 8, "faults": 32, "storm": 8, "cut off": 2, "window": 1, "for ever": 15, "restart": 6,
    "slow": 1, "neighbours": 2, "data or control": 6,
    "incast": 2,
}  # fmt: skip
"""Topics of schedules, with the weight of each in the draw."""
BUGGIFY_KINDS = ("faults", "storm", "cut off", "window", "for ever", "restart", "data or control")
"""Kinds whose packets may be lost or late: rare behaviour of hosts (buggify) looks the same."""
SELECTIVE = ("one_way", "loss")
"""Kinds of faults that may hit data or control packets alone (SORTS)."""
SORTS = ("data", "control")
HEALED_S = 2.0
"""Every fault that ends has ended by then; from there on all that is left has to finish."""
HEADER = 138
"""Bytes of a trimmed packet."""
SHORT_RTT_S = 0.004
"""Round trip below which the timer of `timeout` 12, 17 ms, has four round trips.

A timer with fewer may expire because of a full queue alone.
"""
HOPS = 4
"""Links from a host to one of another rack."""
LONG_ONE_IN = 3000
"""One schedule in so many lasts for an hour or half of one."""
STALL_S = 1.0
"""A host or switch has no CPU for this long at most."""


class ScheduleError(ValueError):
    """Bad schedule file; the message names the error."""


@dataclass(frozen=True)
class Post:
    """One write: `side` 0 writes from the first host of connection `qp` to the second, 1 the other way."""

    at: float
    qp: int
    side: int
    size: int
    imm: int | None = None
    times: int = 1
    every: float = 0.0
    """Seconds between the repetitions of the post."""


@dataclass(frozen=True)
class SimFault:
    """Fault that begins at `at` and ends at `until` (None: never).

    The last three kinds are no faults but orders of the controller or the application of a host, withdrawn at `until`:
    an EV of each connection is denied, the window shrinks (dynamic MPR), the sender is asked to slow down.

    `restart`: the process of a host dies, another one begins `value` seconds later, and at `until` (None: never) its
    connections are made anew, which `pattern` says how: "qpn" and "psn" give the same numbers again, "keep" leaves the
    other end's QP to itself instead of destroying it. `destroy`: a host destroys its QP of connection `value`.

    `where`: a link, a switch (blackhole, switch_off, stall), all of them (ALL_SWITCHES: stall) or a host (stall,
    vanish, restart, destroy and the orders).
    `value`: share of the packets (loss, corrupt, duplicate), seconds each way (flap), extra seconds (delay; reorder: up
    to; late: one packet in LATE_ONE_IN), seconds between two ports (stall). `pattern`: 0 = lost, 1 = passes, over and
    over: zeros first, or one at the end; of stall: the planes in the order in which the host reads its ports
    afterwards; of late: "twin" when only a copy is late; of one_way and loss: "data" or "control" when only these are
    lost (SELECTIVE), as in a hole for long frames.
    """

    kind: str
    where: str
    at: float
    until: float | None
    value: float = 0.0
    pattern: str = ""
    reverse: bool = False
    """one_way, loss, pattern, corrupt, duplicate, late: from the second node of the link to the first."""

    @property
    def ends(self) -> tuple[str, str]:
        """Nodes of the faulty link."""
        a, b = self.where.split(" ")
        return a, b

    @property
    def way(self) -> tuple[str, str]:
        """Direction of the faulty link, from and to."""
        a, b = self.ends
        return (b, a) if self.reverse else (a, b)


@dataclass(frozen=True)
class Schedule:
    """A fabric, its configuration, and what happens on it."""

    seed: int
    plan: dict[str, int]
    network: dict[str, Any]
    """Keys of run.NETWORK: rate, delays, queue sizes, marks, `wire`."""
    config: dict[str, Any]
    """Engine keys of every host that differ from the defaults."""
    config_of: dict[str, dict[str, Any]]
    """Engine keys of one host, on top of `config`."""
    qps: list[list[str]]
    """Connections: [host, host]."""
    posts: list[Post] = field(default_factory=list)
    faults: list[SimFault] = field(default_factory=list)
    psn: int | None = None
    """First PSN of every QP; None = random."""
    kind: str = "faults"
    """Kind that the schedule was drawn as (KINDS)."""
    buggify: float = 0.0
    """Share of the times at which a point of simulator/simtest/buggify.py does what is rare."""
    watched_s: float | None = None
    """Limit of the watched time, seconds; None: the usual time."""

    @property
    def lasting(self) -> bool:
        """Whether some fault never ends."""
        return any(fault.until is None for fault in self.faults if fault.kind not in ("restart", "destroy"))

    def plan_of(self) -> Plan:
        """Return the plan of the fabric. Raises PlanError."""
        return plan_of_shape(self.plan)

    def configs(self) -> dict[str, Config]:
        """Return the configuration of every host. Raises ConfigError."""
        base = Config.from_json(self.config)
        configs = {host.name: base for host in self.plan_of().hosts}
        for host, keys in self.config_of.items():
            if host in configs:
                configs[host] = Config.from_json({**self.config, **keys})
        return configs

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1)

    @classmethod
    def from_json(cls, data: Any) -> Schedule:
        """Return the schedule of a to_json() record. Raises ScheduleError."""
        keys = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or not set(data) <= keys:
            raise ScheduleError(f"a schedule is a mapping of known keys alone. Known keys: {', '.join(sorted(keys))}")
        try:
            posts = [Post(**post) for post in data.get("posts", ())]
            faults = [SimFault(**fault) for fault in data.get("faults", ())]
            schedule = cls(**{**data, "posts": posts, "faults": faults})
            hosts = set(schedule.configs())
            host_names = {name for pair in schedule.qps for name in pair} | set(schedule.config_of)
            if not host_names <= hosts:
                raise ScheduleError(f"no host {', '.join(sorted(host_names - hosts))} in this plan")
            if unknown_kinds := [f.kind for f in schedule.faults if f.kind not in FAULTS]:
                raise ScheduleError(f"no fault {unknown_kinds[0]!r} (known: {', '.join(FAULTS)})")
            if lost := [f for f in schedule.faults if f.kind == "destroy" and not 0 <= f.value < len(schedule.qps)]:
                raise ScheduleError(f"{lost[0]} names a connection that does not exist")
            if odd := [f.pattern for f in schedule.faults if f.kind in SELECTIVE and f.pattern not in ("", *SORTS)]:
                raise ScheduleError(f"{odd[0]!r} is no sort of packets that is lost alone (known: {', '.join(SORTS)})")
            if any(not 0 <= p.qp < len(schedule.qps) or p.side not in (0, 1) for p in schedule.posts):
                raise ScheduleError("a write names a connection that does not exist")
        except (TypeError, PlanError, ConfigError) as error:
            raise ScheduleError(str(error)) from None
        return schedule


def plan_of_shape(shape: dict[str, int]) -> Plan:
    """Return the plan of some dimensions, shared by all schedules of that shape. Raises PlanError.

    A plan never changes.
    """
    if isinstance(shape, dict) and set(map(type, shape.values())) <= {int}:
        return _plan_of_items(tuple(shape.items()))
    return Plan.from_json(shape)  # from a file: it says what is wrong


@lru_cache(maxsize=512)
def _plan_of_items(items: tuple[tuple[str, int], ...]) -> Plan:
    return Plan.from_json(dict(items))


# ---- drawing ------------------------------------------------------------------------------------------------


def draw(seed: int) -> Schedule:
    """Draw the schedule of a seed."""
    rng = Random(f"mrc-simtest {seed}")
    if rng.random() < 1 / LONG_ONE_IN:
        return draw_long(seed, rng)
    plan = {
        "planes": rng.choice((1, 2, 2, 3, 4)),
        "racks": rng.choice((1, 2, 2, 3)),
        "spines": rng.choice((1, 2, 2, 3, 4)),
        "hosts_per_rack": rng.choice((1, 1, 2, 3)),
    }
    if plan["racks"] == plan["hosts_per_rack"] == 1:
        plan["racks"] = 2
    fabric_plan = plan_of_shape(plan)
    names = [host.name for host in fabric_plan.hosts]
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    config = draw_config(rng)
    config_of = {}
    if rng.random() < 0.3:
        own_config = draw_config(rng)
        config_of[rng.choice(names)] = {k: own_config[k] for k in own_config if k in _ONE_SIDED}
    qps = [rng.sample(names, 2) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
    if len(qps) > 1 and rng.random() < 0.3:
        qps[-1] = list(qps[0])
    if 0 in (keys.get("ev_min_active") for keys in (config, *config_of.values())):
        config["probe_timeout_s"] = 0.1  # with no EV left, only answered probes get a QP going again
    qp_hosts = sorted({name for pair in qps for name in pair})
    network = draw_network(rng, kind)
    if network["mode"] == "switch-spray":
        config["ev_fifo"] = False  # one EV takes every path
    if network["trim_bytes"] is not None:
        # Headers have priority. From packets of 256 bytes a fixed window makes enough of them to starve all data.
        config["pmtu_bytes"] = 1024
    posts = draw_posts(rng, len(qps), config.get("pmtu_bytes", 256), kind)
    faults = (
        [] if kind == "calm" else [draw_fault(rng, fabric_plan, qp_hosts) for _ in range(rng.choice((1, 1, 2, 3, 5)))]
    )
    schedule = Schedule(
        seed=seed,
        plan=plan,
        network=network,
        config=config,
        config_of=config_of,
        qps=qps,
        posts=posts,
        faults=faults,
        kind=kind,
    )
    if kind in _SHAPERS:
        schedule = _SHAPERS[kind](rng, schedule, fabric_plan, qp_hosts)
    schedule = replace(schedule, psn=rng.choice((None, None, 0, 0xFFFFF0, 0x7FFFF8)))
    if kind in _LAST_SHAPERS:
        schedule = _LAST_SHAPERS[kind](rng, schedule)
    if kind in BUGGIFY_KINDS and rng.random() < 0.3:
        schedule = replace(schedule, buggify=rng.choice((0.02, 0.1, 0.3)))
    return schedule


# ---- kinds --------------------------------------------------------------------------------------------------


def _without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def _for_ever(rng: Random, schedule: Schedule, plan: Plan, hosts: list[str]) -> Schedule:
    faults = draw_lasting(rng, plan, hosts)
    config_of = {host: _without(keys, *_BUDGET) for host, keys in schedule.config_of.items()}
    return replace(schedule, faults=faults, config=schedule.config | draw_budget(rng), config_of=config_of)


def _data_or_control(rng: Random, schedule: Schedule, plan: Plan, hosts: list[str]) -> Schedule:
    schedule = _for_ever(rng, schedule, plan, hosts)
    faults = draw_selective(rng, plan, hosts, rng.choice((None, None, HEALED_S)))
    if rng.random() < 0.2:  # and something else on top
        faults.append(draw_fault(rng, plan, hosts))
    guesses = {
        "clear_bits": rng.choice(("unknown", "lost")),
        "loss_rule": rng.choice(_KEYS["loss_rule"]),
        "cc_algorithm": rng.choice(("fixed", "uet-1.0-nscc")),
    }
    config_of = {host: _without(keys, *guesses) for host, keys in schedule.config_of.items()}
    return replace(schedule, faults=faults, config=schedule.config | guesses, config_of=config_of)


def _calm_schedule(_rng: Random, schedule: Schedule, _plan: Plan, _hosts: list[str]) -> Schedule:
    config = _without(schedule.config, *_UNSETTLING) | {"timeout": 16, "reorder_threshold": SURE}
    return replace(schedule, config=config, config_of={})


def _without_cpu(rng: Random, schedule: Schedule, plan: Plan, hosts: list[str]) -> Schedule:
    schedule = _calm_schedule(rng, replace(schedule, faults=draw_stalls(rng, plan, hosts)), plan, hosts)
    return replace(schedule, config=_without(schedule.config, *_BUDGET, *_HASTY) | {"timeout": 16})


def _restart_schedule(rng: Random, schedule: Schedule, plan: Plan, hosts: list[str]) -> Schedule:
    faults, posts = draw_restart(rng, plan, hosts), schedule.posts
    again_at = faults[0].until
    if again_at is not None:  # some of the work comes after it
        posts = [replace(p, at=round(again_at + p.at, 6)) if rng.random() < 0.5 else p for p in posts]
        posts.sort(key=lambda p: p.at)
    config = _without(schedule.config, *_BUDGET) | {"timeout": 14}
    return replace(schedule, faults=faults, posts=posts, config=config, config_of={})


def _window(_rng: Random, schedule: Schedule, _plan: Plan, _hosts: list[str]) -> Schedule:
    config = schedule.config | {"mpr_packets": 128, "cwnd_bytes": 1 << 20}
    if schedule.network["trim_bytes"] is not None:  # headers of many small packets starve data, too, if they come first
        config["trimmed_queue"] = "medium"
    return replace(schedule, config=config)


def _cut_off(rng: Random, schedule: Schedule, plan: Plan, hosts: list[str]) -> Schedule:
    budget = {"timeout": rng.choice((12, 14)), "linear_cnt": rng.choice((0, 2)), "exp_cnt": rng.choice((1, 3))}
    time = round(rng.random() * 0.01, 6)
    nics = [link for link in plan.links if link.lower.node == hosts[0]]
    faults = [SimFault(rng.choice(("link_down", "one_way")), link.name, time, HEALED_S) for link in nics]
    return replace(schedule, config=schedule.config | budget, faults=faults)


_SHAPERS: dict[str, Callable[[Random, Schedule, Plan, list[str]], Schedule]] = {
    "for ever": _for_ever,
    "stalled": _without_cpu,
    "restart": _restart_schedule,
    "calm": _calm_schedule,
    "window": _window,
    "cut off": _cut_off,
    "data or control": _data_or_control,
}


def _slow(rng: Random, schedule: Schedule) -> Schedule:
    plan = {"planes": rng.choice((1, 2)), "racks": 2, "spines": 1, "hosts_per_rack": 1}
    network = schedule.network | {
        "mode": "srv6",
        "rate_bps": 100e6,
        "delay_s": rng.uniform(0.15, 0.3) / 8,
        "jitter_s": 0.0,
        "queue_bytes": 1 << 20,
        "mark_bytes": None,
        "trim_bytes": None,
    }
    config = _without(schedule.config, *_BUDGET, *_UNSETTLING, "timeout_rtts")
    config |= {"timeout": 16, "timestamps": True, "clear_bits": rng.choice(("unknown", "unknown", "lost"))}
    posts = [Post(0.0, 0, 0, config["pmtu_bytes"] * rng.choice((60, 100, 200)))]
    return replace(
        schedule,
        plan=plan,
        network=network,
        config=config,
        config_of={},
        faults=[],
        psn=None,
        qps=[["h0", "h1"]],
        posts=posts,
    )


def _neighbours(rng: Random, schedule: Schedule) -> Schedule:
    qps = [schedule.qps[0], list(schedule.qps[0])]
    config = {
        "timeout": 14,
        "cc_algorithm": "uet-1.0-nscc",
        "pmtu_bytes": 256,
        "exp_cnt": rng.choice((2, 5, 25)),
        "link_rate_bps": 20e6,
        "base_rtt_s": 0.002,
    }
    network = schedule.network | {
        "mode": "srv6",
        "queue_bytes": 1 << 20,
        "mark_bytes": None,
        "trim_bytes": None,
        "rate_bps": 20e6,
    }
    posts = [Post(0.0, number, 0, 256 * rng.choice((200, 400))) for number in (0, 1)]
    time = round(rng.random() * 0.03, 6)
    faults = [SimFault("destroy", qps[0][1], time, time, float(rng.randrange(2)))]
    return replace(schedule, network=network, config=config, config_of={}, qps=qps, posts=posts, faults=faults)


def _incast(rng: Random, schedule: Schedule) -> Schedule:
    """Draw a schedule in which many hosts write to one at once, and nothing is broken.

    From two senders up, pipes from a packet up, queues with and without trims and marks; windows too large for it, or
    congestion control.
    """
    senders = rng.choice((2, 3, 4, 6, 8, 8, 12, 16, 24))
    racks = rng.choice((2, 3))
    plan = {
        "planes": rng.choice((1, 1, 2, 4)),
        "racks": racks,
        "spines": rng.choice((1, 2)),
        "hosts_per_rack": -(-(senders + 1) // racks),
    }
    names = [host.name for host in plan_of_shape(plan).hosts]
    target = rng.choice(names)
    sources = rng.sample([name for name in names if name != target], senders)
    pmtu, rate_bps = rng.choice((1024, 4096)), rng.choice((20e6, 100e6, 1e9))
    delay_s = rng.choice((10e-6, 50e-6, 200e-6))
    rtt_s = 2 * HOPS * delay_s + HOPS * (pmtu + 200) * 8 / rate_bps
    pipe_bytes = max(rate_bps * rtt_s / 8, 2 * pmtu)
    trims = rng.random() < 0.7
    network = schedule.network | {
        "mode": rng.choice(("srv6", "srv6", "ecmp", "switch-spray")),
        "rate_bps": rate_bps,
        "spine_share": 1.0,
        "delay_s": delay_s,
        "jitter_s": 0.0,
        "fifo": True,
        "wire": False,
        "ring_packets": rng.choice((2, 4)),
        "trim_bytes": int(pipe_bytes * rng.choice((1, 1.5))) if trims else None,
        "mark_bytes": int(pipe_bytes * rng.choice((0.2, 0.8))) if rng.random() < 0.7 else None,
        "queue_bytes": int(pipe_bytes * (3 if trims else 5)),
    }
    config = {
        "pmtu_bytes": pmtu,
        "timeout": 16,
        "link_rate_bps": plan["planes"] * rate_bps,
        "base_rtt_s": rtt_s,
        "sack_flush_s": min(0.004, rtt_s),
        "fabric_trims": trims,
        "cc_algorithm": rng.choice(("fixed", "uet-1.0-nscc", "uet-1.0-nscc")),
        "cwnd_bytes": rng.choice((20_000, 100_000, 1 << 18)),
        "cc_start": rng.choice((1.0, 1.0, 0.25)),
    }
    if network["mode"] == "switch-spray":
        config["ev_fifo"] = False
    if trims:  # what congestion must not spend may be small
        config |= {
            "timeout": 12 if rtt_s < SHORT_RTT_S else 14,
            "linear_cnt": rng.choice((0, 0, 3)),
            "exp_cnt": rng.choice((2, 2, 5)),
        }
    if trims and senders * HEADER > pmtu / 2:
        config["trimmed_queue"] = "medium"  # headers that come first, and so many, starve data (simulation-testing.md)
    packets_per_sender = max(2, rng.choice((100, 200, 600)) // senders)
    messages = rng.choice((1, 1, 4))
    posts = [Post(0.0, qp, 0, pmtu * packets_per_sender // messages, None, messages) for qp in range(senders)]
    qps = [[source, target] for source in sources]
    return replace(schedule, plan=plan, network=network, config=config, config_of={}, qps=qps, posts=posts, faults=[])


def _with_drawn_psns(_rng: Random, schedule: Schedule) -> Schedule:
    return replace(schedule, psn=None)


_LAST_SHAPERS: dict[str, Callable[[Random, Schedule], Schedule]] = {
    "slow": _slow,
    "neighbours": _neighbours,
    "restart": _with_drawn_psns,
    "incast": _incast,
}


_ONE_SIDED = frozenset(
    (
        "mpr_packets",
        "cwnd_bytes",
        "sack_threshold_bytes",
        "sack_flush_s",
        "oor_action",
        "timeout",
        "linear_cnt",
        "exp_cnt",
        "reorder_threshold",
        "ev_min_active",
        "backup_per_plane",
        "probe_ok_count",
        "timestamps",
        "max_wimm",
        "trim_nack",
        "cc_algorithm",
        "window_end",
        "bitmap_base",
        "clear_bits",
        "rtx_echo",
        "loss_rule",
        "timeout_phases",
        "skip_mode",
        "skip_to_bad",
        "revival_slot",
        "all_ports_down",
        "first_msn",
        "first_rqmsn",
    )
)
"""Keys two ends need not agree on."""

_KEYS: dict[str, tuple[Any, ...]] = {
    "mpr_packets": (128, 128, 128, 256, 1024),
    "cwnd_bytes": (256, 1500, 6000, 20_000, 100_000, 1 << 20),
    "max_wimm": (1, 2, 4, 32),
    "sack_threshold_bytes": (0, 1, 1, 2000, 10_000),
    "sack_flush_s": (0.0005, 0.002, 0.004, 0.02),
    "trim_nack": (True, True, True, False),
    "oor_action": ("nack", "drop"),
    "ev_fifo": (True, True, False),
    "reorder_threshold": (0, 0, 3, 10, 64),
    "timeout": (12, 13, 14, 15, 16),
    "linear_cnt": (0, 1, 3, 7),
    "exp_cnt": (1, 2, 5, 25, 25, 25),
    "timeout_rtts": (0, 2.0, 4.0),
    "timeout_ceiling_s": (0.05, 0.1, 0.3),
    "timestamps": (True, True, False),
    "ev_layout": ("L", "H"),
    "backup_per_plane": (-1, -1, 0, 1),
    "max_active": (100, 100, 4, 1),
    "ev_min_active": (-1, -1, 0, 1, 2, 5),
    "probe_interval_s": (0.02, 0.05, 0.2),
    "probe_timeout_s": (0.01, 0.05, 0.1),
    "probe_ok_count": (1, 2, 3),
    "probe_ok_max": (1, 4, 64),
    "probe_fail_count": (1, 2, 3),
    "probe_forgive_s": (0.1, 1.0, 60.0),
    "port_status_repeats": (1, 3),
    "port_status_refresh_s": (0.05, 0.3, 1.0),
    "dynamic_mpr": (False, True),
    "always_skip_marks": (0, 2, 32),
    "bitmap_packets": (0, 0, 32),
    "work_slots": (0, 0, 8),
    "rx_buffer_bytes": (0, 0, 20_000),
    "rx_drain_bytes_per_s": (1e5, 1e6, 1e8),
    "flow_control": (False, True),
    "flow_control_start": (0.2, 0.5),
    "flow_control_restore": (True, False),
    "no_receive": ("nak", "deliver"),
    "cc_algorithm": ("fixed", "uet-1.0-nscc", "none"),
    "cc_scope": ("destination", "qp"),
    "cc_send_rule": ("mrc", "uet"),
    "cc_scaling": ("shape", "uet"),
    "flow_label": ("copied", "inner", "outer"),
    "flow_label_bits": (16, 20),
    "se_bit": (7, 6),
    "eeth_op_shift": (2, 4),
    "ftype_bare": (1, 0),
    "probe_psn": ("zero", "probe_id"),
    "udp_checksum": ("zero", "computed"),
    "dcids": ("packet", "roles", "connection"),
    "first_msn": (0, 1),
    "first_rqmsn": (1, 0),
    "dma_length": ("message", "message", "remainder"),
    "window_end": ("inclusive", "inclusive", "exclusive"),
    "rcvd_counts": ("udp+40", "udp+40", "payload+40", "payload"),
    "bitmap_base": ("turns", "turns", "cack"),
    "clear_bits": ("unknown", "unknown", "unknown", "lost"),
    "rtx_echo": (True, False),
    "loss_rule": ("all", "all", "all", "distance", "time", "ooo"),
    "timeout_phases": ("linear-exponential", "linear-exponential", "linear", "exponential"),
    "unknown_nack": ("no_resource", "ignore"),
    "skip_mode": ("cursor", "rotation", "timer"),
    "skip_timer_s": (5e-6, 0.001),
    "skip_to_bad": (True, False),
    "probe_marked": ("skip", "good"),
    "revival_slot": ("empty", "own"),
    "port_bit_base": (0, 1),
    "all_ports_down": ("charge", "wait"),
    "trim_len": (0, 0, 122),
    "trimmed_queue": ("control", "medium"),
    "link_rate_bps": (0.0, 100e6),
    "base_rtt_s": (0.0, 0.002),
}
"""Values to draw from. Keys which this engine does not have are passed over."""
_UNSETTLING = (
    "bitmap_packets",
    "work_slots",
    "rx_buffer_bytes",
    "reorder_threshold",
    "dynamic_mpr",
    "sack_flush_s",
    "clear_bits",
    "loss_rule",
    "window_end",
)
"""Keys with which packets are refused or sent again without any fault."""
_HASTY = ("probe_timeout_s", "probe_fail_count")
"""Keys with which a probe that is not answered for a moment convicts its path."""
SURE = 1 << 16
"""Value of `reorder_threshold` that rules out guessing by distance (§5.9 b).

Small packets lap large ones on slow links.
"""


def draw_config(rng: Random) -> dict[str, Any]:
    """Draw a configuration with some keys off their defaults."""
    config: dict[str, Any] = {"pmtu_bytes": rng.choice((256, 256, 256, 512, 1024)), "timeout": 14}
    eager = rng.choice((0.1, 0.3, 0.7))
    for key, values in _KEYS.items():
        value, is_chosen = rng.choice(values), rng.random() < eager
        if is_chosen and key in KEYS:
            config[key] = value
    return config


def draw_network(rng: Random, kind: str) -> dict[str, Any]:
    """Draw links and queues. The storm has small queues, marks, trims, jitter and loss everywhere."""
    network: dict[str, Any] = {
        "mode": rng.choice(("srv6", "srv6", "srv6", "structured", "ecmp", "switch-spray")),
        "rate_bps": rng.choice((20e6, 100e6, 1e9)),
        "spine_share": rng.choice((1.0, 1.0, 0.3)),
        "delay_s": rng.choice((50e-6, 200e-6, 1e-3)),
        "jitter_s": 0.0,
        "queue_bytes": 1 << 20,
        "mark_bytes": None,
        "trim_bytes": None,
        "ring_packets": rng.choice((2, 4, 64, 1000)),
        "fifo": True,
        "wire": rng.random() < 0.15,
    }
    if kind not in ("calm", "stalled") and rng.random() < 0.4:
        network["queue_bytes"] = rng.choice((3_000, 10_000, 40_000))
        network["mark_bytes"] = rng.choice((None, 1_000, 5_000))
        network["trim_bytes"] = rng.choice((None, 2_000, 8_000))
    if kind == "storm":
        network["jitter_s"] = rng.choice((0.0, 100e-6, 1e-3))
        network["fifo"] = rng.random() < 0.5
    return network


def draw_posts(rng: Random, qps: int, pmtu: int, kind: str) -> list[Post]:
    """Draw a workload of up to some hundreds of packets; for "window" many small writes at once."""
    posts: list[Post] = []
    budget = 300 if rng.random() < 0.01 else rng.choice((2, 4, 6, 8, 10, 15, 20, 30, 40, 60))
    both_sides = rng.random() < 0.5
    imms = rng.choice((0.0, 0.0, 0.2, 1.0))
    spread = rng.choice((0.0, 0.0, 0.02, 0.3))
    sizes = rng.choice(("mixed", "mixed", "small", "one"))
    if kind == "window":
        budget, both_sides, spread, sizes = 180, False, 0.0, "small"
    elif kind == "for ever":
        spread = rng.choice((0.0, 0.02, 0.1, 0.3))
    elif kind == "stalled":
        spread, budget = rng.choice((0.02, 0.1, 0.3, 0.6)), rng.choice((20, 40, 80))
    while budget > 0 and len(posts) < 250:
        if sizes == "small":
            size = rng.choice((0, 1, 7, pmtu - 1, pmtu, pmtu + 1))
        elif sizes == "one":
            size = budget * pmtu
        else:
            size = rng.choice((0, 1, pmtu, rng.randrange(4 * pmtu), rng.randrange(40 * pmtu), 8 * pmtu))
        size = min(size, budget * pmtu)
        budget -= max(1, -(-size // pmtu))
        imm = rng.getrandbits(32) if rng.random() < imms else None
        side = rng.randrange(2) if both_sides else 0
        posts.append(Post(round(rng.random() * spread, 6), rng.randrange(qps), side, size, imm))
    return sorted(posts, key=lambda p: p.at)


def draw_fault(rng: Random, plan: Plan, hosts: list[str]) -> SimFault:
    """Draw one fault before HEALED_S, on any link or switch; NICs and nodes are those of `hosts`."""
    kind = rng.choice(ENDING)
    time = round(rng.choice((0.0, rng.random() * 0.01, rng.random() * 0.1, rng.random() * 0.5)), 6)
    lasts = rng.choice((rng.random() * 0.01, rng.random() * 0.1, rng.random(), HEALED_S))
    end_s = round(min(time + lasts, HEALED_S), 6)
    nics = [link for link in plan.links if link.lower.node in hosts]
    link = rng.choice(nics if kind == "port_down" or rng.random() < 0.4 else plan.links)
    location, value, pattern = link.name, 0.0, ""
    if kind in ("blackhole", "switch_off"):
        location = rng.choice(plan.switches).name
    elif kind == "stall":
        # A stall has a limit of its own, and like any fault it has to end by HEALED_S.
        location, value, pattern = _draw_stall(rng, plan, hosts)
        end_s = round(time + rng.random() * min(STALL_S, HEALED_S - time), 6)
    elif kind in ("vanish", "deny", "shrink_mpr", "penalty"):
        location = rng.choice(hosts)
    elif kind in ("loss", "corrupt", "duplicate"):
        value = rng.choice((0.01, 0.1, 0.5))
        pattern = _sort(rng, kind)
    elif kind == "one_way":
        pattern = _sort(rng, kind)
    elif kind == "late":
        value = rng.choice((0.05, 0.5, 2.0, 5.0))
        pattern = rng.choice(("", "twin"))
    elif kind == "flap":
        value = rng.choice((0.002, 0.02, 0.1))
    elif kind in ("delay", "reorder"):
        value = rng.choice((0.0005, 0.005, 0.03, 0.075))
    elif kind == "pattern":
        pattern = rng.choice(("10", "110", "0" + "1" * 9, "000" + "1" * 20, "0" + "1" * 49))
    return SimFault(kind, location, time, end_s, value, pattern, rng.random() < 0.5)


# ---- lasting faults -----------------------------------------------------------------------------------------

_BUDGET = ("timeout", "linear_cnt", "exp_cnt", "timeout_phases", "timeout_ceiling_s")
"""Keys that make the retry budget."""


def draw_budget(rng: Random) -> dict[str, Any]:
    """Draw a finite retry budget, most often one that is soon spent; sometimes the default one."""
    if rng.random() < 0.15:
        return {
            "timeout": 16,
            "linear_cnt": 3,
            "exp_cnt": 5,
            "timeout_phases": "linear-exponential",
            "timeout_ceiling_s": 4.0,
        }
    return {
        "timeout": rng.choice((12, 13, 14)),
        "linear_cnt": rng.choice((0, 1, 3)),
        "exp_cnt": rng.choice((1, 2, 5)),
        "timeout_phases": rng.choice(("linear-exponential", "linear-exponential", "linear", "exponential")),
        "timeout_ceiling_s": rng.choice((0.05, 0.1, 0.3)),
    }


def draw_lasting(rng: Random, plan: Plan, hosts: list[str]) -> list[SimFault]:
    """Draw faults that never end: single ones, one host's ports, or a silent end.

    With a host's ports down, the rest of its links is dead or lossy.
    """
    shape = rng.choice(("single", "single", "ports", "ports", "gone"))
    if shape == "single":
        return [_lasting(rng, plan, hosts) for _ in range(rng.choice((1, 1, 2, 4)))]
    host = rng.choice(hosts)
    nics = [link for link in plan.links if link.lower.node == host]
    time = _moment(rng)
    if shape == "gone":
        faults = [SimFault("vanish", host, time, None)]
        down_links = rng.sample(nics, rng.randrange(len(nics)))
    else:
        rng.shuffle(nics)
        count = rng.randrange(1, len(nics)) if len(nics) > 1 else 0
        down_links, other_links = nics[:count], nics[count:]
        faults = []
        damage = rng.choice(("dead", "dead", "lossy", "one_way", "mixed"))
        for link in other_links:
            link_damage = rng.choice(("dead", "lossy", "one_way")) if damage == "mixed" else damage
            for reverse in (False, True) if link_damage != "one_way" else (rng.random() < 0.5,):
                same_plane = [candidate for candidate in plan.links if candidate.plane == link.plane]
                target_link = link if rng.random() < 0.7 else rng.choice(same_plane)
                kind, value = ("loss", rng.choice((0.15, 0.3, 0.5))) if link_damage == "lossy" else ("one_way", 0.0)
                faults.append(SimFault(kind, target_link.name, time, None, value, "", reverse))
    is_later = rng.random() < 0.5  # first the silent death, then the ports; or the other way round
    down_time = (
        round(time + rng.choice((0.0, 0.01, 0.1, 0.5)) * rng.random(), 6) if is_later else round(time * rng.random(), 6)
    )
    return faults + [SimFault("port_down", link.name, down_time, None) for link in down_links]


def _moment(rng: Random) -> float:
    return round(rng.choice((0.0, rng.random() * 0.01, rng.random() * 0.1, rng.random() * 0.5)), 6)


def _lasting(rng: Random, plan: Plan, hosts: list[str]) -> SimFault:
    kind = rng.choice(
        (
            # Kinds that are listed twice are drawn twice as often: losses that no port reports.
            "link_down",
            "one_way",
            "one_way",
            "loss",
            "loss",
            "pattern",
            "corrupt",
            "blackhole",
            "blackhole",
            "switch_off",
            "port_down",
            "stall",
            "vanish",
        )
    )
    time = _moment(rng)
    nics = [link for link in plan.links if link.lower.node in hosts]
    location = rng.choice(nics if kind == "port_down" or rng.random() < 0.4 else plan.links).name
    value, pattern = 0.0, ""
    if kind in ("blackhole", "switch_off"):
        location = rng.choice(plan.switches).name
    elif kind in ("stall", "vanish"):
        location = rng.choice(hosts)
    elif kind in ("loss", "corrupt"):
        value = rng.choice((0.15, 0.3, 0.5))
        pattern = _sort(rng, kind)
    elif kind == "one_way":
        pattern = _sort(rng, kind)
    elif kind == "pattern":
        pattern = rng.choice(("10", "110", "0" + "1" * 9, "000" + "1" * 20))
    return SimFault(kind, location, time, None, value, pattern, rng.random() < 0.5)


def _sort(rng: Random, kind: str) -> str:
    """Draw the sort of packets that a fault of this kind loses alone; mostly "", all sorts."""
    return rng.choice(("", "", *SORTS)) if kind in SELECTIVE else ""


def draw_selective(rng: Random, plan: Plan, hosts: list[str], end_s: float | None) -> list[SimFault]:
    """Draw faults that lose data or control alone, on all paths of a host or on all but one plane.

    The loss is to the host, from it, or both ways.
    """
    sort, host, time = rng.choice(SORTS), rng.choice(hosts), _moment(rng)
    links = [link for link in plan.links if link.lower.node == host]
    if len(links) > 1 and rng.random() < 0.25:
        links.remove(rng.choice(links))
    kind, share = rng.choice((("one_way", 0.0), ("one_way", 0.0), ("loss", 0.5), ("loss", 0.9)))
    ways = rng.choice(((False,), (True,), (False, True)))
    return [SimFault(kind, link.name, time, end_s, share, sort, reverse) for link in links for reverse in ways]


def _draw_stall(rng: Random, plan: Plan, hosts: list[str]) -> tuple[str, float, str]:
    """Draw the node without CPU, seconds between the ports it reads afterwards, and their order."""
    roll = rng.random()
    if roll < 0.15:
        return rng.choice(plan.switches).name, 0.0, ""
    order = " ".join(map(str, rng.sample(range(plan.planes), plan.planes))) if rng.random() < 0.8 else ""
    if roll < 0.3:
        return ALL_SWITCHES, rng.choice((0.0, 0.0005)), order
    return rng.choice(hosts), rng.choice((0.0, 0.0, 0.0005, 0.002, 0.005)), order


def draw_stalls(rng: Random, plan: Plan, hosts: list[str]) -> list[SimFault]:
    """Draw stalls of hosts and switches alone: some long ones, or many short ones as on a busy machine."""
    faults = []
    busy = rng.random() < 0.5
    for _ in range(rng.randrange(3, 9) if busy else rng.choice((1, 1, 2, 3))):
        location, value, pattern = _draw_stall(rng, plan, hosts)
        time = round(rng.random() * rng.choice((0.01, 0.1, 0.5)), 6)
        lasts = (0.04 if busy else rng.choice((0.05, 0.3, STALL_S))) * rng.random()
        faults.append(SimFault("stall", location, time, round(time + lasts, 6), value, pattern))
    return faults


# ---- restarts, long runs ------------------------------------------------------------------------------------


def draw_restart(rng: Random, plan: Plan, hosts: list[str]) -> list[SimFault]:
    """Draw a restart of a host's process in mid-transfer, with port changes and packets seconds late.

    With the same QPN and the same PSNs again nothing in a packet distinguishes the two lives: then packets of the
    former life must have left the network before (a time-wait, as for any transport), so none is late and no peer
    keeps its former QP.
    """
    host = rng.choice(hosts)
    time = round(rng.random() * rng.choice((0.005, 0.05, 0.3)), 6)
    down_s = rng.choice((0.0, 0.001, 0.1, 0.4)) * rng.random()
    words = rng.choice(("", "", "qpn", "psn", "qpn psn", "keep", "qpn keep"))
    end_s = None
    if rng.random() < 0.8:
        pause = 0.5 if words == "qpn psn" else rng.choice((0.0, 0.01, 0.3))
        end_s = round(time + down_s + pause + rng.random() * 0.1, 6)
    faults = [SimFault("restart", host, time, end_s, round(down_s, 6), words)]
    nics = [link for link in plan.links if link.lower.node in hosts]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        link = rng.choice([nic for nic in nics if nic.lower.node == host] if rng.random() < 0.7 else nics)
        start_s = round(rng.random() * (time + 0.1), 6)
        stop_s = round(min(max(start_s, time) + rng.random() * rng.choice((0.02, 0.5, 1.0)), HEALED_S), 6)
        faults.append(SimFault("port_down", link.name, start_s, stop_s))
    if words != "qpn psn":
        for link in rng.sample(plan.links, min(len(plan.links), rng.choice((0, 1, 3)))):
            late_s = rng.choice((0.1, 0.5, 2.0, 5.0))
            faults.append(
                SimFault("late", link.name, 0.0, HEALED_S, late_s, rng.choice(("", "twin")), rng.random() < 0.5)
            )
    return faults


def draw_long(seed: int, rng: Random) -> Schedule:
    """Draw an hour of one packet at a time, or half an hour of silence with endless retries.

    Such a run shows whether anything piles up.
    """
    plan = {"planes": rng.choice((1, 2, 4)), "racks": 2, "spines": rng.choice((1, 2)), "hosts_per_rack": 1}
    config = {key: value for key, value in draw_config(rng).items() if key not in ("max_wimm", "flow_control")}
    config |= {"timeout": 16, "exp_cnt": 25, "timeout_phases": "linear-exponential"}
    network = draw_network(rng, "calm") | {"wire": False}
    posts, faults, watched_s = [], [], 3700.0
    if rng.random() < 0.5:
        imm = rng.getrandbits(32)
        posts = [Post(0.6 * side, 0, side, 7, imm, times=3000, every=1.2) for side in (0, 1)]
    else:
        posts = [Post(0.0, 0, 0, config["pmtu_bytes"] * rng.choice((1, 20, 60)))]
        faults, watched_s = [SimFault("vanish", "h1", rng.choice((0.0, 0.002)), None)], 1800.0
        config["timeout_ceiling_s"] = rng.choice((0.3, 4.0))
    return Schedule(
        seed=seed,
        plan=plan,
        network=network,
        config=config,
        config_of={},
        qps=[["h0", "h1"]],
        posts=posts,
        faults=faults,
        kind="long",
        watched_s=watched_s,
    )
