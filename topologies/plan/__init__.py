"""The fabric as pure data, for everybody: `Plan` and what it is made of. Standard library only.

    plan           Plan: names, links, addresses, routes, EVs and paths by mode
    model          what a fabric is made of, as records
    addressing     uSIDs, EVs and the addresses made of them
    modes          forwarding modes
    layout         what an uneven fabric lacks of the grid, names and speeds of its own
    link_speeds    rates, delays and the queue thresholds that follow
    outline        the names of a fabric of any size, without addresses

What others need stands here; the modules inside may change.
"""

from mrc_testbed.topologies.plan.addressing import (
    LOCATOR,
    ROLE_DOWNLINK,
    ROLE_T0,
    ROLE_T1,
    USID_BITS,
    PlanError,
    carrier,
    ev_plane,
    ev_uplink,
    make_ev,
    segment_list,
    usid,
    usids_of,
)
from mrc_testbed.topologies.plan.layout import GridLayout, default_host, default_t0, default_t1, name_mistake
from mrc_testbed.topologies.plan.link_speeds import LinkSpeed, Thresholds
from mrc_testbed.topologies.plan.model import Host, Link, Port, Switch, SwitchRoutes, Tier, path_label, turning_point
from mrc_testbed.topologies.plan.modes import Mode
from mrc_testbed.topologies.plan.outline import Outline
from mrc_testbed.topologies.plan.plan import CPU_PORT, DEVICE_MTU, INTERFACE_NAME_MAX, Plan

__all__ = [
    "CPU_PORT",
    "DEVICE_MTU",
    "INTERFACE_NAME_MAX",
    "LOCATOR",
    "ROLE_DOWNLINK",
    "ROLE_T0",
    "ROLE_T1",
    "USID_BITS",
    "GridLayout",
    "Host",
    "Link",
    "LinkSpeed",
    "Mode",
    "Outline",
    "Plan",
    "PlanError",
    "Port",
    "Switch",
    "SwitchRoutes",
    "Thresholds",
    "Tier",
    "carrier",
    "default_host",
    "default_t0",
    "default_t1",
    "ev_plane",
    "ev_uplink",
    "make_ev",
    "name_mistake",
    "path_label",
    "segment_list",
    "turning_point",
    "usid",
    "usids_of",
]
