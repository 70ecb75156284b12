"""Mininet's nodes, interfaces and links, made for our fabric.

No ifconfig, no addresses, nothing that outlives us.

Differences from Mininet's own classes, which remain their base, so that its CLI and API keep working:

* interfaces are created by netdev.create_links, all at once, before the `Link` objects that stand for them;
* shells carry the run's token and die with the front process;
* nothing is configured by Mininet: a cable has no kernel address; a host's address is on `fabric0`, which its agent
  serves over all cables (hosts/ip/gateway.py);
* interfaces are removed together by the fabric, not link by link.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sysconfig
from collections.abc import Callable
from typing import Any

from mrc_testbed.ipc import processes, procfs
from mrc_testbed.ipc.rundir import FabricError, HostOffError
from mrc_testbed.topologies.lab.mininet import Host, Intf, Link, Mininet, Node, Switch
from mrc_testbed.topologies.lab.netdev import IFF_UP, NodeInterfaces, in_namespace, prepare_namespace
from mrc_testbed.topologies.lab.wires import WiredDevices

OPEN_FILES = 16384
SHELL_CHECK_MS = 200
"""Time between two looks at a shell whose command is silent."""


class ShellEndedError(FabricError):
    """End of the shell of a node in the middle of a command."""


class FabricIntf(Intf):
    """An interface that exists already and is set up and down through its node's NetDevices."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def ifconfig(self, *args: str) -> str:
        """Set the interface `up` or `down` for Mininet's link commands; else show it."""
        if args in (("up",), ("down",)):
            self.set_up(args == ("up",))
            return ""
        if isinstance(self.node.devices, WiredDevices) and self.node.devices.has_wire(self.name):
            return f"{self.name}: end of a wire inside the switches' daemon, {'up' if self.isUp() else 'down'}\n"
        return str(self.cmd("ip", "addr", "show", "dev", self.name, *args))

    def set_up(self, is_up: bool) -> None:
        """Administratively up or down. Raises FabricError."""
        self.node.devices.set_flags(self.name, on=IFF_UP if is_up else 0, clear=0 if is_up else IFF_UP)

    def isUp(self, setUp: bool = False) -> bool:
        if setUp:
            self.set_up(True)
        return bool(self.node.devices.is_up(self.name))

    def updateIP(self) -> None:
        """Find none: a cable has no kernel address, and a node's name in a command stays a name."""

    def updateMAC(self) -> str | None:
        mac: str | None = self.mac
        return mac

    def updateAddr(self) -> tuple[None, str | None]:
        return None, self.mac

    def status(self) -> str:
        try:
            return "OK" if self.isUp() else "DOWN"
        except FabricError:
            return "MISSING"

    def delete(self) -> None:
        """Forget it; the fabric removes interfaces."""
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):
    """A link over a veth pair that exists already."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_params: Any) -> None:
        """Make no interfaces: see create_links."""

    def stop(self) -> None:
        """Leave the interfaces to the fabric, which removes all in one stroke."""


class FabricNode(Node):
    """A node whose shell and commands belong to the run of a token."""

    is_powered = True

    def __init__(self, name: str, *, token: str, devices: NodeInterfaces | None = None, **params: Any) -> None:
        self._token = token
        Node.__init__(self, name, **params)  # not Switch's, which runs `ifconfig lo up`
        self.devices: NodeInterfaces = devices if devices is not None else in_namespace(self.pid, prepare_namespace)

    @classmethod
    def setup(cls) -> None:
        """Skip Mininet's check for ifconfig; what we need is checked before (preflight.py)."""

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        return processes.popen(cmd, self._token, **params)

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    # ---- a shell that ends: `h1 exit`, `kill -9 $$`, `mn -c` elsewhere -------------------------------------

    def revive(self) -> bool:
        """Start a new shell where the old one was if that has ended; return whether it had."""
        if self.shell is None or self.shell.poll() is None:
            return False
        self.waiting = False
        self.cleanup()
        self._restart_shell()
        return True

    def _restart_shell(self) -> None:
        self.startShell()

    @property
    def namespace_pid(self) -> int:
        """A process in the node's namespaces: its shell, a new one if need be."""
        self.revive()
        return int(self.pid)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        self.revive()
        super().sendCmd(*args, **kwargs)

    def monitor(self, timeoutms: int | None = None, findPid: bool = True) -> str:
        """Return output of the command that runs. Raises ShellEndedError when the shell ends instead.

        The end is asked for before each read: a terminal that has hung up may keep its reader waiting, and jobs that
        the shell left behind keep the terminal open.
        """
        wait_ms = SHELL_CHECK_MS if timeoutms is None else timeoutms
        while True:
            events = self.waitReadable(wait_ms)
            if self.revive():
                raise ShellEndedError(f"{self.name}: the shell has ended; a new one has begun")
            if self.readbuf or any(event & select.POLLIN for _, event in events or ()):
                return str(super().monitor(0, findPid))
            if timeoutms is not None:
                return ""

    def terminate(self) -> None:
        """End the shell and its jobs. SIGKILL: nobody waits for a command somebody left running."""
        if self.shell and self.shell.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.shell.pid, signal.SIGKILL)
        self.cleanup()


class LateShell(Node):
    """A node whose shell starts with its first command.

    Few nodes are ever typed at, and each shell takes a while.
    """

    _ended = False

    def startShell(self, mnopts: str | None = None) -> None:
        """Start no shell yet."""

    def _wake(self) -> None:
        if self.shell is None and not self._ended:
            self._start_shell()

    def _start_shell(self) -> None:
        Node.startShell(self)

    def _restart_shell(self) -> None:
        self._start_shell()

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        self._wake()
        super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        self._wake()
        return super().cmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        self._wake()
        return super().popen(*args, **kwargs)

    def terminate(self) -> None:
        self._ended = True
        super().terminate()


class FabricHost(FabricNode, Host):
    """A host in its own network namespace, with one interface for each plane.

    Its commands know where they are: MRC_HOST is its name, MRC_RUN_DIR the run folder, and the tools are on PATH.
    `names_file` replaces /etc/hosts for them; `ip` is the IPv4 address of the host.
    """

    def __init__(self, name: str, *, run_dir: str, ip: str, names_file: str, **params: Any) -> None:
        self._ip = ip
        self._enter: list[str] = []
        """Words before a command that bring it into the host's namespaces."""
        scripts = sysconfig.get_path("scripts")
        self._environment = {
            "MRC_HOST": name,
            "MRC_RUN_DIR": run_dir,
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        }
        super().__init__(name, **params)
        self._namespaces = [
            os.open(f"/proc/{self.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("net", "mnt")
        ]
        # The shell's own mount namespace: no other process of the machine sees these names.
        self.names_error = str(self.cmd("mount", "--bind", names_file, "/etc/hosts")).strip()
        """Refusal of the mount, which leaves the host without the names of the others; empty: they are there."""

    def power_off(self) -> None:
        """Kill every process in the host, whoever started it; none starts until it is on. Raises FabricError.

        Its namespaces, held open here, stay with their interfaces and names.
        """
        self.is_powered = False
        number, own_pids = os.fstat(self._namespaces[0]).st_ino, procfs.lineage()

        def is_inside(pid: int) -> bool:
            try:
                return pid not in own_pids and os.stat(f"/proc/{pid}/ns/net").st_ino == number
            except OSError:  # it has ended
                return False

        try:
            procfs.kill_all(is_inside)
        except TimeoutError as error:
            raise FabricError(f"{self.name} is not off: {error}") from error

    def power_on(self) -> None:
        """Let commands run again."""
        self.is_powered = True

    def revive(self) -> bool:
        """Start a new shell as any node does. Raises HostOffError without power."""
        if not self.is_powered:
            self.waiting = False  # a command that ran has died with the host
            raise HostOffError(self.name)
        return super().revive()

    def _restart_shell(self) -> None:
        net, mount = (f"/proc/{os.getpid()}/fd/{number}" for number in self._namespaces)
        self._enter = ["nsenter", f"--net={net}", f"--mount={mount}"]
        self.inNamespace = False  # Mininet would make new ones
        try:
            self.startShell()
        finally:
            self.inNamespace, self._enter = True, []

    def IP(self, intf: Any = None) -> str:  # noqa: ARG002 - Mininet's signature
        """Return the IPv4 address of the host, whatever the interface: its agent serves it on all planes."""
        return self._ip

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        given = params.pop("env", None) or os.environ
        return super()._popen([*self._enter, *cmd], env={**given, **self._environment}, **params)

    def terminate(self) -> None:
        self.devices.close()
        for number in self._namespaces:
            os.close(number)
        self._namespaces = []
        super().terminate()


class LabSwitchNode(LateShell, FabricNode, Switch):
    """A switch of the lab: a device of the daemon, in the root namespace."""

    def __init__(self, name: str, **params: Any) -> None:
        params.pop("inNamespace", None)
        FabricNode.__init__(self, name, inNamespace=False, **params)
        self.dpid, self.opts, self.listenPort, self.controlIntf = "0", "", None, None

    def start(self, _controllers: object = ()) -> None:
        """Start nothing: the lab makes the device."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Leave the device to the lab."""


class FabricMininet(Mininet):
    """Mininet without its changes to the machine.

    It sets no sysctl, and links change state through the fabric.
    """

    def __init__(self, set_link: Callable[[str, str, bool], Any]) -> None:
        self._set_link = set_link
        self.init()
        Mininet.inited = True  # or it would call its own `init`, by name, which sets a dozen sysctls
        super().__init__(link=FabricLink, intf=FabricIntf, controller=None, build=False)

    @classmethod
    def init(cls) -> None:
        """Raise only this process's limit of open files: a shell takes two, a large fabric has hundreds."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    def configHosts(self) -> None:
        """Configure nothing: loopback is up, and a command would start the shell of every host."""

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """`link a b up|down` of Mininet. Raises PlanError for a link that does not exist."""
        self._set_link(src, dst, status == "up")
