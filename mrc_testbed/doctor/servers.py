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
        machines = [RemoteMachine(machine, front, lambda _machine_name, _reason: None) for machine in servers.machines]
        try:
            with ThreadPoolExecutor(len(machines)) as pool:
                for machine_checks in pool.map(_machine, machines):
                    yield from machine_checks
            yield from _check_underlay([machine for machine in machines if machine.hello], servers)
        finally:
            for machine in machines:
                with suppress(FabricError):  # it has been told why
                    machine.close()


def _machine(machine: RemoteMachine) -> list[Check]:
    try:
        machine.open()
    except FabricError as error:
        return _cannot_begin(machine, str(error))
    connection = machine.connection
    name = connection.machine.address
    checks = [
        Check(f"{machine.name}: ssh", True, f"{name} ({machine.hello['hostname']}, Linux {machine.hello['kernel']})")
    ]
    checks += [
        _version(machine),
        _clock(machine, connection),
        *_own_doctor(machine, connection),
        _vxlan(machine, connection),
    ]
    if not machine.machine.is_local:
        checks += _sshd(machine, connection)
    checks.append(_leftovers(machine, connection))
    return checks


def _cannot_begin(machine: RemoteMachine, reason: str) -> list[Check]:
    """No connection, or one to a machine where mrc-testbed does not run."""
    try:
        connection = machine.connection
    except FabricError:
        return [Check(f"{machine.name}: ssh", False, reason, "all else is looked at once it answers")]
    return [
        Check(f"{machine.name}: ssh", True, machine.machine.address),
        Check(f"{machine.name}: mrc-testbed", False, reason, "all else is looked at once it does"),
        *_own_doctor(machine, connection),
    ]


def _version(machine: RemoteMachine) -> Check:
    is_same = machine.hello["digest"] == sources_digest()
    return Check(
        f"{machine.name}: mrc-testbed",
        is_same,
        f"{machine.machine.checkout}: {'same' if is_same else 'other'} files as here",
        "bring it to the same commit as this machine (`git pull` there, or rsync the checkout)",
    )


def _clock(machine: RemoteMachine, connection: MachineConnection) -> Check:
    """Return the check of a machine's clock.

    A difference is no harm where a time namespace can remove it.
    """
    offset = f"{machine.clock_offset_s:+.3f} s to ours, known to {machine.clock_exact_s * 1e3:.2g} ms"
    able = connection.run(["unshare", "--time", "true"]).returncode == 0
    return Check(
        f"{machine.name}: clock",
        able or abs(machine.clock_offset_s) < 1e-3,
        offset,
        "a kernel from 5.6 on with CONFIG_TIME_NS: what runs there is given our clock",
    )


def _own_doctor(remote_machine: RemoteMachine, connection: MachineConnection) -> Iterator[Check]:
    """Yield the findings of `mrc doctor` on a machine."""
    machine = remote_machine.machine
    command = [
        "env",
        f"PYTHONPATH={machine.checkout}",
        f"MRC_RUN_DIR={remote_machine.run_dir}",
        machine.python,
        "-m",
        "mrc_testbed",
    ]
    process = None
    try:
        process = connection.run([*command, "doctor", "--json"])
        rows = json.loads(process.stdout)
    except (FabricError, ValueError) as error:
        error_lines = process.stderr.decode(errors="replace").strip().splitlines() if process is not None else []
        cure = f"`make setup` there; then it is `{machine.python} -m mrc_testbed doctor`"
        yield Check(
            f"{remote_machine.name}: doctor",
            False,
            f"mrc doctor there: {error_lines[-1] if error_lines else error}",
            cure,
        )
        return
    # Leftovers and root are matters of this machine's user there, not of the machine.
    lacking = [row for row in rows if not row["ok"] and row["name"] not in ("leftovers", "root")]
    for row in lacking:
        if row["needed"]:
            yield Check(f"{remote_machine.name}: {row['name']}", False, row["found"], row["cure"])
    needed_count = sum(row["needed"] for row in rows)
    yield Check(f"{remote_machine.name}: doctor", True, f"{len(rows)} checks there, {needed_count} of them needed")


def _vxlan(machine: RemoteMachine, connection: MachineConnection) -> Check:
    process = connection.run(["unshare", "--net", "sh", "-c", _VXLAN])
    able = process.returncode == 0
    return Check(
        f"{machine.name}: VXLAN",
        able,
        "can be made, and loses carrier when told" if able else process.stderr.decode(errors="replace").strip(),
        "a kernel with CONFIG_VXLAN (`modprobe vxlan`), 5.15 or later, and iproute2",
    )


def _sshd(machine: RemoteMachine, connection: MachineConnection) -> Iterator[Check]:
    """Yield the check that a machine's sshd forwards sockets, with its limits on sessions.

    The testbed uses one connection.
    """
    process = connection.run(["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin sshd -T 2>/dev/null"])
    sshd_settings = dict(
        line.split(maxsplit=1) for line in process.stdout.decode(errors="replace").splitlines() if " " in line
    )
    if not sshd_settings:
        yield Check(f"{machine.name}: sshd", True, "its settings cannot be read; it took our connection")
        return
    wrong_settings = [
        f"{key} {sshd_settings[key]}"
        for key, good_values in _FORWARDING.items()
        if sshd_settings.get(key) not in (None, *good_values)
    ]
    limits = f"MaxStartups {sshd_settings.get('maxstartups', '?')}, MaxSessions {sshd_settings.get('maxsessions', '?')}"
    yield Check(
        f"{machine.name}: sshd",
        not wrong_settings,
        ", ".join(wrong_settings) or f"forwards sockets; {limits} (one connection is used)",
        "set AllowTcpForwarding and AllowStreamLocalForwarding to yes in its sshd_config",
    )


def _leftovers(machine: RemoteMachine, connection: MachineConnection) -> Check:
    state = machine.run_dir / "state.json"
    is_present = connection.run(["test", "-e", str(state)]).returncode == 0
    return Check(
        f"{machine.name}: leftovers",
        not is_present,
        f"{state} {'exists' if is_present else 'is not there'}",
        "a fabric is up there, or a run was killed: `mrc clean` there (the next start does it too)",
        needed=False,
    )


def _check_underlay(machines: list[RemoteMachine], servers: Servers) -> Iterator[Check]:
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


def _pair(machine: RemoteMachine, peer: RemoteMachine, addresses: dict[str, str]) -> Check:
    name = f"{machine.name} to {peer.name}"
    mode = Plan().mode
    for pmtu in PMTUS:
        try:
            probe_result: dict[str, Any] = machine.request(
                "probe", local=addresses[machine.name], remote=addresses[peer.name], frame_bytes=frame_bytes(pmtu, mode)
            )
        except FabricError as error:
            reason = str(error)
            continue
        lost = f", {probe_result['lost']} of {probe_result['count']} lost" if probe_result["lost"] else ""
        narrow = "" if pmtu == PMTUS[0] else f"; path MTU {PMTUS[0]} does not fit"
        return Check(
            name,
            probe_result["lost"] == 0 and not narrow,
            f"round trip {probe_result['median_s'] * 1e3:.3g} ms at path MTU {pmtu}{lost}{narrow}",
            f"raise the MTU between them for `--pmtu {PMTUS[0]}`; `--pmtu 1024`, the default, works",
            needed=False,
        )
    return Check(name, False, reason, f"let UDP port {VXLAN_PORT} pass, and packets of 1,300 bytes")
