"""Layout of a plan on the page: a panel for each plane, hosts below T0s below T1s. Pure."""

from __future__ import annotations

from typing import Any

from mrc_testbed.topologies.plan import Plan

HOST_STEP, RACK_GAP = 34.0, 22.0
"""Distance of two hosts of a rack, and of two racks, in units of the drawing."""
TOP, HOST_DROP = 20.0, 64.0
"""Vertical position of the T1s; distance of T0s and their hosts."""
DROP, DROP_EACH = 62.0, 6.0
"""Distance of T1s and T0s, and its growth per switch of the longer row, so that lines stay distinct."""
MARGIN, WIDTH_MIN = 30.0, 320.0
NODE_SIZE = {"host": (22.0, 16.0), "t0": (40.0, 18.0), "t1": (30.0, 18.0)}
"""Width and height by kind of node; part of the drawing."""


def drawing(plan: Plan) -> dict[str, Any]:
    """Return the layout of a plan.

    `sizes`: size of nodes by kind. `planes`: number, width, height, nodes (name, kind, label, x, y) and links (name,
    kind, ends as nodes, interfaces and points) of each. A host is in every panel, with its port of that plane.
    """
    columns = plan.hosts_per_rack * HOST_STEP + RACK_GAP
    width = max(plan.racks * columns + 2 * MARGIN, plan.spines * HOST_STEP + 2 * MARGIN, WIDTH_MIN)
    return {
        "planes": [_panel(plan, plane, width, columns) for plane in range(plan.planes)],
        "sizes": NODE_SIZE,
        "hosts": [host.name for host in plan.hosts],
        "mode": plan.mode,
        "said": str(plan),
    }


def _panel(plan: Plan, plane: int, width: float, columns: float) -> dict[str, Any]:
    t0_row = TOP + DROP + DROP_EACH * max(plan.racks, plan.spines)
    rows = {"t1": TOP, "t0": t0_row, "host": t0_row + HOST_DROP}
    left_edge = (width - plan.racks * columns + RACK_GAP) / 2
    positions: dict[str, tuple[float, float]] = {}
    nodes = []
    # A host is drawn once per plane; its port of that plane is the end of the link.
    for host in plan.hosts:
        x = left_edge + host.rack * columns + (host.downlink + 0.5) * HOST_STEP
        positions[host.name] = (x, rows["host"])
        nodes.append(_node(host.name, "host", host.name, x, rows["host"]))
    for switch in plan.switches:
        if switch.plane != plane:
            continue
        if switch.tier == 0:
            x = left_edge + switch.number * columns + plan.hosts_per_rack * HOST_STEP / 2
            kind, label = "t0", f"T0 {switch.number}"
        else:
            x = width * (switch.number + 0.5) / plan.spines
            kind, label = "t1", f"T1 {switch.number}"
        positions[switch.name] = (x, rows[kind])
        nodes.append(_node(switch.name, kind, label, x, rows[kind]))
    links = []
    for link in plan.links:
        if link.plane != plane:
            continue
        a, b = link.lower, link.upper
        links.append(
            {
                "name": link.name,
                "kind": link.kind,
                "nodes": [a.node, b.node],
                "interfaces": [a.interface, b.interface],
                "points": [*positions[a.node], *positions[b.node]],
            }
        )
    return {"plane": plane, "width": width, "height": rows["host"] + TOP, "nodes": nodes, "links": links}


def _node(name: str, kind: str, label: str, x: float, y: float) -> dict[str, Any]:
    return {"name": name, "kind": kind, "label": label, "x": round(x, 1), "y": y}
