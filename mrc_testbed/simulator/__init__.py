"""The virtual-time fabric: unchanged engines, seeded and repeatable networks. See docs/virtual.md."""

from mrc_testbed.native_build import use

use()

from mrc_testbed.simulator.fabric import VirtualFabric  # noqa: E402 - after use(), which decides where modules come from
from mrc_testbed.simulator.profiles import (  # noqa: E402
    UNLIMITED,
    HostProfile,
    Line,
    LinkProfile,
    ProfileError,
    QueueProfile,
    Scale,
    scaled,
)
from mrc_testbed.simulator.workloads import Flow, incast, jain, permutation, rates_bps, run_all  # noqa: E402

__all__ = [
    "UNLIMITED",
    "Flow",
    "HostProfile",
    "Line",
    "LinkProfile",
    "ProfileError",
    "QueueProfile",
    "Scale",
    "VirtualFabric",
    "incast",
    "jain",
    "permutation",
    "rates_bps",
    "run_all",
    "scaled",
]
