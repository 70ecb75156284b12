"""Nodes on other machines and VXLAN links, after Mininet's cluster edition.

Nodes are RemoteMixin of mininet.examples.cluster: their shells and commands run over ssh, in the namespace that the
machine made for them. Three parts of the cluster edition are not used: its connections, one for each node (here one
for each machine), its clean-up by `mn -c`, which removes what others made, and its tunnels over ssh, which carry
636 packets/s.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from mininet.examples.cluster import RemoteGRELink, RemoteMixin
from mininet.node import Host, Node

from mrc_testbed.ipc import processes
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine
from mrc_testbed.topologies.lab.netdev import IFF_UP
from mrc_testbed.topologies.lab.nodes import FabricNode, LateShell
from mrc_testbed.topologies.lab.targets import FabricSwitch


class RemoteInterfaces:
    """Interfaces of a node on another machine, set and asked through the network of all machines."""

    def __init__(self, set_up: Callable[[str, bool], None], is_up: Callable[[str], bool]) -> None:
        self._set_up, self.is_up = set_up, is_up

    def set_flags(self, name: str, on: int = 0, clear: int = 0) -> None:
        """Up or down: all that is ever changed from here."""
        if (on | clear) & IFF_UP:
            self._set_up(name, bool(on & IFF_UP))

    def close(self) -> None:
        """Do nothing: no handle is open."""


class _OverSsh(RemoteMixin, LateShell):
    """Shell and commands on another machine, in the namespace of the process `namespace_pid` there.

    `namespace_pid` 0: the machine's own namespace.
    """

    def __init__(
        self, name: str, *, machine: RemoteMachine, namespace_pid: int, environment: dict[str, str], **params: Any
    ) -> None:
        self._machine, self._namespace_pid, self._environment = machine, namespace_pid, environment
        server = machine.machine
        params["inNamespace"] = False  # Mininet's: its namespace exists already
        super().__init__(name, server=server.name, user=server.user or "root", serverIP=server.address, **params)
        self.pid = namespace_pid

    def startShell(self, mnopts: str | None = None) -> None:
        """Do nothing: the shell starts later.

        RemoteMixin's method would start a shell to ask for its pid.
        """

    def _start_shell(self) -> None:
        """Raises FabricError when there is no way to the machine."""
        self._machine.request("beat")  # or Mininet waits for a prompt that never comes
        try:
            Node.startShell(self, "-c")
        finally:
            self.pid = self._namespace_pid
        os.close(self.slave)  # type: ignore[has-type] # Mininet has no types; ssh has it: when that ends, whoever reads hears of it
        self.slave = os.open(os.devnull, os.O_RDONLY)

    def monitor(self, *args: Any, **kwargs: Any) -> Any:
        """Output of a command. Raises FabricError when the machine goes meanwhile."""
        try:
            return super().monitor(*args, **kwargs)
        except OSError as error:
            self.waiting = False
            self.terminate()
            self._ended = False
            raise FabricError(
                f"{self.name}: its command's end is unknown: the way to machine {self._machine.name} broke"
            ) from error

    def _popen(self, cmd: Sequence[str], sudo: bool = True, tt: bool = True, **params: Any) -> Any:  # noqa: ARG002
        """RemoteMixin's, over the machine's one connection."""
        enter = ("mnexec", "-a", str(self._namespace_pid)) if self._namespace_pid else ()
        variables = [f"{key}={value}" for key, value in self._environment.items()]
        command = self._machine.connection.command(["env", *variables, *enter, *cmd], terminal=tt)
        params.pop("env", None)
        return processes.popen(command, self._token, start_new_session=True, **params)

    def terminate(self) -> None:
        self._ended = True
        if self.shell and self.shell.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.shell.pid, signal.SIGKILL)
        self.cleanup()


class RemoteFabricHost(_OverSsh, FabricNode, Host):
    """A host in a network namespace of another machine."""


class RemoteFabricSwitch(_OverSsh, FabricSwitch):
    """A switch of another machine's daemon; its commands run in that machine's own namespace."""


class VxlanLink(RemoteGRELink):
    """A link between nodes, wherever they are; between machines it is a VXLAN tunnel.

    Machines make links in one batch each: the ones inside by themselves, tunnels from what `tunnel(interface1,
    interface2)` was told here.
    """

    def __init__(self, node1: Any, node2: Any, *, tunnel_between: Callable[[str, str], None], **params: Any) -> None:
        self._tunnel_between = tunnel_between
        super().__init__(node1, node2, **params)

    def makeIntfPair(
        self,
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,
        addr2: str | None = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = True,  # noqa: ARG002 - all are new
    ) -> None:
        """Inside of a machine, nothing: it has made the pair."""
        node1, node2 = node1 or self.node1, node2 or self.node2
        if node1.server != node2.server:
            self.makeTunnel(node1, node2, intfname1, intfname2, addr1, addr2)
            self.tunnel = 1

    def makeTunnel(
        self,
        node1: Any,  # noqa: ARG002
        node2: Any,  # noqa: ARG002
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,  # noqa: ARG002
        addr2: str | None = None,  # noqa: ARG002
    ) -> None:
        self._tunnel_between(intfname1, intfname2)

    def status(self) -> str:
        """Return the status of both ends."""
        return f"({self.intf1.status()} {self.intf2.status()})"

    def stop(self) -> None:
        """Do nothing: each machine removes its interfaces in one step."""
