"""A fabric without interfaces, as the words of the CLI see it.

Links, power, traffic, agents that answer by table.
"""

import dataclasses
import types

from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.topologies.lab.fault_injection import Injector
from mrc_testbed.topologies.lab.traffic_control import Cable, PortTraffic, TrafficControl
from mrc_testbed.topologies.plan import Plan

DEFAULT = Plan()


class Net(dict):
    """Net as Mininet's CLI needs it: a mapping of names to nodes."""

    def __init__(self, plan=DEFAULT):
        names = [node.name for node in (*plan.hosts, *plan.switches)]
        super().__init__({name: types.SimpleNamespace(name=name, waiting=False) for name in names})


class Client:
    """A JsonlClient that answers from a table."""

    def __init__(self, **answers):
        self.answers = answers
        self.requests = []

    def request(self, op, **fields):
        self.requests.append((op, fields))
        return self.answers[op]


class Traffic(TrafficControl):
    """Takes every setting and remembers it."""

    def __init__(self, plan):
        super().__init__(plan)
        self.settings = []

    def _apply(self, settings):
        self.settings += settings

    def read(self, interface):
        figures = {s.figure: s.value for s in self.settings if s.interface == interface and s.direction is None}
        cables = {way: self._cable(interface, way) for way in ("input", "output")}
        return PortTraffic(interface, figures.get("rate-bps"), **cables)

    def _cable(self, interface, direction):
        cable = Cable()
        for setting in self.settings:
            if (setting.interface, setting.direction) == (interface, direction):
                field, scale = {"loss-ppm": ("loss", 1e6), "delay-us": ("delay_s", 1e6)}.get(setting.figure, ("", 1))
                cable = dataclasses.replace(cable, **{field: setting.value / scale}) if field else cable
        return cable

    def on_switch_restart(self, switch):
        pass

    def close(self):
        pass


class StandInFabric:
    """Links, power and traffic settings as a Fabric keeps them, without interfaces."""

    def __init__(self, tmp_path, plan=DEFAULT):
        self.plan = plan
        self.mininet = Net(plan)
        self.hosts = {h.name: None for h in plan.hosts}
        self.switches = dict.fromkeys(s.name for s in plan.switches)
        self.nodes_off = []
        self.cut = set()
        self.run_dir = types.SimpleNamespace(
            log=lambda name: tmp_path / f"{name}.log", data=tmp_path, path=tmp_path, switchd_socket=tmp_path / "no.sock"
        )
        self.controller = Client()
        self.mapper = Client()
        self.agents = {}
        self.traffic = Traffic(self.plan)
        self.inject = Injector(self)
        self.parts = types.SimpleNamespace(dead_parts=[], cures=False)
        self.link_states = dict
        self.bring = lambda host, path: path
        """Path at which a host can read a file; a test of several machines gives another place."""

    def discard(self, host, path):
        path.unlink(missing_ok=True)

    def set_interfaces(self, interfaces, is_up):
        (self.cut.difference_update if is_up else self.cut.update)(interfaces)
        return 1.0

    def link_is_up(self, link):
        dark = link.ends & set(self.nodes_off)
        return not self.cut & {link.lower.interface, link.upper.interface} and not dark

    def power(self, name, on):
        (self.nodes_off.remove if on else self.nodes_off.append)(name)

    def agent(self, host):
        if host not in self.agents:
            raise JsonlError(f"{host}: no agent listens")
        return self.agents[host]


def output_of(cli, line):
    """Return the output of one command."""
    cli.stdout.seek(0)
    cli.stdout.truncate()
    assert cli.onecmd(cli.precmd(line)) is None
    return cli.stdout.getvalue().rstrip("\n")
