"""`mrc doctor --servers FILE`: what a cluster's machines have for a fabric, what they lack, the cure.

All machines are asked at once, and pairs of them about the network between. Nothing is changed on any of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from mrc_testbed.doctor.doctor import Check
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.lab.cluster.connection import MachineConnection
from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine
from mrc_testbed.topologies.lab.cluster.sources import sources_digest
from mrc_testbed.topologies.lab.cluster.switches import underlay_address
from mrc_testbed.topologies.lab.netdev import VXLAN_PORT
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.plan.link_speeds import frame_bytes
from mrc_testbed.topologies.servers import Servers

_VXLAN = (
    "ip link add mrcdoctor type vxlan id 1 local 127.0.0.1 remote 127.0.0.2 dstport 4789 && "
    "ip link set dev mrcdoctor protodown on"
)
_FORWARDING = {"allowtcpforwarding": ("yes", "local", "all"), "allowstreamlocalforwarding": ("yes", "all")}
PMTUS = (4096, 1024)
"""Path MTUs whose frames are tried between machines, bytes."""


def checks(servers: Servers) -> Iterator[Check]:
    """Every check, machine by machine and then between them, as they become known."""
    with tempfile.TemporaryDirectory(prefix="mrc-doctor-") as folder:
        front = RunDir(Path(folder))
        front.logs.mkdir()
        machines = [RemoteMachine(machine, front, lambda _one, _why: None) for machine in servers.machines]
        try:
            with ThreadPoolExecutor(len(machines)) as pool:
                for found in pool.map(_machine, machines):
                    yield from found
            yield from _between([machine for machine in machines if machine.hello], servers)
        finally:
            for machine in machines:
                with suppress(FabricError):  # it has been told why
                    machine.close()


def _machine(one: RemoteMachine) -> list[Check]:
    try:
        one.open()
    except FabricError as error:
        return _cannot_begin(one, str(error))
    connection = one.connection
    name = connection.machine.address
    checks = [Check(f"{one.name}: ssh", True, f"{name} ({one.hello['hostname']}, Linux {one.hello['kernel']})")]
    checks += [_version(one), _clock(one, connection), *_own_doctor(one, connection), _vxlan(one, connection)]
    if not one.machine.is_local:
        checks += _sshd(one, connection)
    checks.append(_leftovers(one, connection))
    return checks


def _cannot_begin(one: RemoteMachine, why: str) -> list[Check]:
    """No connection, or one to a machine where mrc-testbed does not run."""
    try:
        connection = one.connection
    except FabricError:
        return [Check(f"{one.name}: ssh", False, why, "all else is looked at once it answers")]
    return [
        Check(f"{one.name}: ssh", True, one.machine.address),
        Check(f"{one.name}: mrc-testbed", False, why, "all else is looked at once it does"),
        *_own_doctor(one, connection),
    ]


def _version(one: RemoteMachine) -> Check:
    same = one.hello["digest"] == sources_digest()
    return Check(
        f"{one.name}: mrc-testbed",
        same,
        f"{one.machine.checkout}: {'same' if same else 'other'} files as here",
        "bring it to the same commit as this machine (`git pull` there, or rsync the checkout)",
    )


def _clock(one: RemoteMachine, connection: MachineConnection) -> Check:
    """Return the check of a machine's clock.

    A difference is no harm where a time namespace can remove it.
    """
    apart = f"{one.clock_offset_s:+.3f} s to ours, known to {one.clock_exact_s * 1e3:.2g} ms"
    able = connection.run(["unshare", "--time", "true"]).returncode == 0
    return Check(
        f"{one.name}: clock",
        able or abs(one.clock_offset_s) < 1e-3,
        apart,
        "a kernel from 5.6 on with CONFIG_TIME_NS: what runs there is given our clock",
    )


def _own_doctor(one: RemoteMachine, connection: MachineConnection) -> Iterator[Check]:
    """Yield the findings of `mrc doctor` on a machine."""
    machine = one.machine
    command = [
        "env",
        f"PYTHONPATH={machine.checkout}",
        f"MRC_RUN_DIR={one.run_dir}",
        machine.python,
        "-m",
        "mrc_testbed",
    ]
    done = None
    try:
        done = connection.run([*command, "doctor", "--json"])
        rows = json.loads(done.stdout)
    except (FabricError, ValueError) as error:
        said = done.stderr.decode(errors="replace").strip().splitlines() if done is not None else []
        cure = f"`make setup` there; then it is `{machine.python} -m mrc_testbed doctor`"
        yield Check(f"{one.name}: doctor", False, f"mrc doctor there: {said[-1] if said else error}", cure)
        return
    lacking = [row for row in rows if not row["ok"] and row["name"] not in ("leftovers", "root")]
    for row in lacking:
        if row["needed"]:
            yield Check(f"{one.name}: {row['name']}", False, row["found"], row["cure"])
    needed = sum(row["needed"] for row in rows)
    yield Check(f"{one.name}: doctor", True, f"{len(rows)} checks there, {needed} of them needed")


def _vxlan(one: RemoteMachine, connection: MachineConnection) -> Check:
    done = connection.run(["unshare", "--net", "sh", "-c", _VXLAN])
    able = done.returncode == 0
    return Check(
        f"{one.name}: VXLAN",
        able,
        "can be made, and loses carrier when told" if able else done.stderr.decode(errors="replace").strip(),
        "a kernel with CONFIG_VXLAN (`modprobe vxlan`), 5.15 or later, and iproute2",
    )


def _sshd(one: RemoteMachine, connection: MachineConnection) -> Iterator[Check]:
    """Yield the check that a machine's sshd forwards sockets, with its limits on sessions.

    The testbed uses one connection.
    """
    done = connection.run(["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin sshd -T 2>/dev/null"])
    told = dict(line.split(maxsplit=1) for line in done.stdout.decode(errors="replace").splitlines() if " " in line)
    if not told:
        yield Check(f"{one.name}: sshd", True, "its settings cannot be read; it took our connection")
        return
    wrong = [f"{key} {told[key]}" for key, good in _FORWARDING.items() if told.get(key) not in (None, *good)]
    limits = f"MaxStartups {told.get('maxstartups', '?')}, MaxSessions {told.get('maxsessions', '?')}"
    yield Check(
        f"{one.name}: sshd",
        not wrong,
        ", ".join(wrong) or f"forwards sockets; {limits} (one connection is used)",
        "set AllowTcpForwarding and AllowStreamLocalForwarding to yes in its sshd_config",
    )


def _leftovers(one: RemoteMachine, connection: MachineConnection) -> Check:
    state = one.run_dir / "state.json"
    there = connection.run(["test", "-e", str(state)]).returncode == 0
    return Check(
        f"{one.name}: leftovers",
        not there,
        f"{state} {'exists' if there else 'is not there'}",
        "a fabric is up there, or a run was killed: `mrc clean` there (the next start does it too)",
        needed=False,
    )


def _between(machines: list[RemoteMachine], servers: Servers) -> Iterator[Check]:
    """The network between machines: reached, wide enough, how long a round trip takes."""
    addresses: dict[str, str] = {}
    for machine in machines:
        try:
            addresses[machine.name] = underlay_address(machine.machine, servers.machines)
            machine.request("echo", address=addresses[machine.name])
        except FabricError as error:
            addresses.pop(machine.name, None)
            cure = "give the `underlay` address of the machine, and free the port (is a fabric up?)"
            yield Check(f"{machine.name}: underlay", False, str(error), cure)
    for machine in machines:
        for peer in machines:
            if machine is not peer and {machine.name, peer.name} <= set(addresses):
                yield _pair(machine, peer, addresses)


def _pair(one: RemoteMachine, other: RemoteMachine, addresses: dict[str, str]) -> Check:
    name = f"{one.name} to {other.name}"
    mode = Plan().mode
    for pmtu in PMTUS:
        try:
            told: dict[str, Any] = one.request(
                "probe", local=addresses[one.name], remote=addresses[other.name], frame_bytes=frame_bytes(pmtu, mode)
            )
        except FabricError as error:
            why = str(error)
            continue
        lost = f", {told['lost']} of {told['count']} lost" if told["lost"] else ""
        narrow = "" if pmtu == PMTUS[0] else f"; path MTU {PMTUS[0]} does not fit"
        return Check(
            name,
            told["lost"] == 0 and not narrow,
            f"round trip {told['median_s'] * 1e3:.3g} ms at path MTU {pmtu}{lost}{narrow}",
            f"raise the MTU between them for `--pmtu {PMTUS[0]}`; `--pmtu 1024`, the default, works",
            needed=False,
        )
    return Check(name, False, why, f"let UDP port {VXLAN_PORT} pass, and packets of 1,300 bytes")
