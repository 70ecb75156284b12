"""The gNMI paths of the traffic manager, as data: what can be set, what can be read, units and limits.

Two lists hang on each port (IF is the interface's name, DIR is `input` or `output`, N a priority 0..7, 7 first)::

    /qos/interfaces/interface[interface-id=IF]/output/config/...
    /qos/interfaces/interface[interface-id=IF]/output/queues/queue[name=N]/{config,state}/...
    /interfaces/interface[name=IF]/impairments/DIR/{config,state}/...

A leaf is named by the path below its `interface[...]`, a list key written into its part: ("output", "queues",
"queue[name=7]", "config", "max-packets"). Every config leaf has a default, 0 or "", that means "no limit, no delay, no
loss"; deleting a leaf sets it to that. How the figures act is told in docs/traffic-manager.md.
"""

from __future__ import annotations

from dataclasses import dataclass

Leaf = tuple[str, ...]

PRIORITIES = 8
DIRECTIONS = ("input", "output")

RATE_BPS_MAX = 10**12
RATE_PPS_MAX = 10**9
PACKETS_MAX = 10**6
BYTES_MAX = 10**10
DELAY_US_MAX = 60_000_000
PPM = 1_000_000
SEED_MAX = 2**64 - 1
PATTERN_MAX = 4096
"""Characters of a loss or corruption pattern."""


@dataclass(frozen=True, slots=True)
class ConfigLeaf:
    """One leaf to set: a number 0..`maximum`, or (`maximum` None) a pattern of 0 and 1."""

    name: str
    field: str
    """Field of the settings class in switch/device/traffic.py."""
    maximum: int | None
    meaning: str

    @property
    def default(self) -> int | str:
        return "" if self.maximum is None else 0

    @property
    def allowed_text(self) -> str:
        """Values that the leaf takes, for messages."""
        if self.maximum is None:
            return f"a string of 0 and 1, at most {PATTERN_MAX} long"
        return f"a whole number, 0 to {self.maximum}"


OUTPUT_CONFIG = (
    ConfigLeaf("rate-bps", "rate_bps", RATE_BPS_MAX, "bits/s of the link, frames without FCS; 0: no limit"),
    ConfigLeaf("rate-pps", "rate_pps", RATE_PPS_MAX, "frames/s of the link; 0: no limit"),
)
QUEUE_CONFIG = (
    ConfigLeaf("rate-bps", "rate_bps", RATE_BPS_MAX, "bits/s of this priority; 0: no limit"),
    ConfigLeaf("rate-pps", "rate_pps", RATE_PPS_MAX, "frames/s of this priority; 0: no limit"),
    ConfigLeaf("max-packets", "max_packets", PACKETS_MAX, "frames that may wait, more are dropped; 0: no limit"),
    ConfigLeaf("max-bytes", "max_bytes", BYTES_MAX, "bytes that may wait, more are dropped; 0: no limit"),
)
IMPAIRMENT_CONFIG = (
    ConfigLeaf("delay-us", "delay_us", DELAY_US_MAX, "one-way delay, microseconds"),
    ConfigLeaf("loss-ppm", "loss_ppm", PPM, "frames lost at random, of a million"),
    ConfigLeaf("loss-pattern", "loss_pattern", None, "repeated per frame: 1 loses it"),
    ConfigLeaf("corrupt-ppm", "corrupt_ppm", PPM, "frames with a flipped bit, of a million"),
    ConfigLeaf("corrupt-pattern", "corrupt_pattern", None, "repeated per frame: 1 flips a bit of it"),
    ConfigLeaf("seed", "seed", SEED_MAX, "of the random choices; the same seed gives the same choices"),
)

QUEUE_STATE = (
    "depth-packets",
    "depth-bytes",
    "transmit-pkts",
    "transmit-octets",
    "dropped-pkts",
    "dropped-octets",
    "peak-packets",
)
"""`peak`: the greatest depth since the pipeline was loaded."""
IMPAIRMENT_STATE = ("held-pkts", "lost-pkts", "lost-octets", "corrupted-pkts", "dropped-pkts", "dropped-octets")
"""`held`: on the line now. `dropped`: the device's buffers were exhausted."""


def queue_base(priority: int) -> Leaf:
    """The part of the leaves of one queue that they have in common."""
    return ("output", "queues", f"queue[name={priority}]")


QOS_CONFIG: dict[Leaf, ConfigLeaf] = {("output", "config", leaf.name): leaf for leaf in OUTPUT_CONFIG} | {
    (*queue_base(priority), "config", leaf.name): leaf for priority in range(PRIORITIES) for leaf in QUEUE_CONFIG
}
IMPAIRMENTS_CONFIG: dict[Leaf, ConfigLeaf] = {
    ("impairments", direction, "config", leaf.name): leaf for direction in DIRECTIONS for leaf in IMPAIRMENT_CONFIG
}
CONFIG_LEAVES: dict[Leaf, ConfigLeaf] = QOS_CONFIG | IMPAIRMENTS_CONFIG
"""Leaves that Set takes, below /qos/interfaces/interface[...] or /interfaces/interface[...]."""

QOS_STATE_LEAVES: tuple[Leaf, ...] = tuple(
    (*queue_base(priority), "state", name) for priority in range(PRIORITIES) for name in QUEUE_STATE
)
IMPAIRMENT_STATE_LEAVES: tuple[Leaf, ...] = tuple(
    ("impairments", direction, "state", name) for direction in DIRECTIONS for name in IMPAIRMENT_STATE
)
QOS_ID_LEAVES: tuple[Leaf, ...] = (("interface-id",), *((*queue_base(n), "name") for n in range(PRIORITIES)))

QOS_LEAVES: tuple[Leaf, ...] = (*QOS_ID_LEAVES, *QOS_CONFIG, *QOS_STATE_LEAVES)
"""Below /qos/interfaces/interface[interface-id=IF]."""
IMPAIRMENT_LEAVES: tuple[Leaf, ...] = (*IMPAIRMENTS_CONFIG, *IMPAIRMENT_STATE_LEAVES)
"""Below /interfaces/interface[name=IF]."""
