"""A plan whose names mislead whoever reads a kind from them: hosts begin with `p`, switches with `h`."""

from dataclasses import replace

from mrc_testbed.topologies.plan import GridLayout, Plan


def renamed_plan(plan: Plan) -> Plan:
    """Return the plan with hosts `p-gpu0`, ... and switches `hub1`, ... by device id."""
    hosts = [(host.name, f"p-gpu{host.number}") for host in plan.hosts]
    switches = [(switch.name, f"hub{switch.device_id}") for switch in plan.switches]
    return replace(plan, layout=GridLayout(names=(*hosts, *switches)))
