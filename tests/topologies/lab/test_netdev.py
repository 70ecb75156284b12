"""Interfaces whose IPv6 is off without a write to /proc/sys."""

import subprocess
import sys

import pytest

IN_A_CONTAINER = """
mount --make-rprivate /
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
ip link add end0 type veth peer name end1
"$0" -c "
from mrc_testbed.topologies.lab import netdev
devices = netdev.prepare_namespace()
for name in ('end0', 'end1'):
    devices.quiet(name)
    netdev.forbid_ipv6(name)
    devices.set_flags(name, on=netdev.IFF_UP)
try:
    devices.quiet('c')
except netdev.FabricError as error:
    print(error)
"
ip -6 address
"""


@pytest.mark.root
def test_quiet__needs_no_write_to_proc_sys():
    command = ["unshare", "--net", "--mount", "sh", "-ec", IN_A_CONTAINER, sys.executable]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    first, *addresses = process.stdout.splitlines()
    assert first == "c: cannot keep the kernel's IPv6 off: No such device"
    assert [line for line in addresses if "inet6" in line and "::1/128" not in line] == []
