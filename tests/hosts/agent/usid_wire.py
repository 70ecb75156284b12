"""A fabric of uSID switches reduced to its effect, for tests of agents without switches.

Run inside a namespace.

    python usid_wire.py PLAN_JSON         interfaces: h0-eth0 is the cable of port h0-eth0, and so on

Every frame goes to the host which its uSIDs name, with all but the last uSID spent and the hop limit lowered once per
switch (§8.1). A uSID of another plane, an unknown one or a path without its end is dropped. Lines on standard
input: `cut PLANE UPLINK` loses everything through that T1, `heal` ends that; each is answered `ok`.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys

from mrc_testbed.topologies.plan import ROLE_DOWNLINK, ROLE_T0, ROLE_T1, Plan


def route(plan: Plan, plane: int, frame: bytearray, size: int, cut: set[tuple[int, int]]) -> str | None:
    """Spend the uSIDs of a frame in place; return the host it reaches, None when it is dropped."""
    if size < 94 or frame[12:14] != b"\x86\xdd" or frame[20] != 41 or frame[38:42] != b"\xfc\xbb\xbb\x00":
        return None
    usids = [int.from_bytes(frame[offset : offset + 2], "big") for offset in range(42, 54, 2)]
    rack = None
    for hop, usid in enumerate(usids):
        role, usid_plane, number = usid >> 12, usid >> 8 & 15, usid & 255
        if usid_plane != plane or (role == ROLE_T1 and (plane, number) in cut):
            return None
        if role == ROLE_T0:
            rack = number
        elif role == ROLE_DOWNLINK and rack is not None and hop and usids[hop + 1 : hop + 2] == [0]:
            frame[42:54] = usid.to_bytes(2, "big") + bytes(10)
            frame[21] -= hop
            host_number = rack * plan.hosts_per_rack + number
            return f"h{host_number}" if host_number < len(plan.hosts) else None
        elif role != ROLE_T1:
            return None
    return None


def main() -> None:
    plan = Plan.from_json(json.loads(sys.argv[1]))
    cut: set[tuple[int, int]] = set()
    selector = selectors.DefaultSelector()
    sockets: dict[str, socket.socket] = {}
    interfaces = {name for _, name in socket.if_nameindex()}
    for host in plan.hosts:
        for plane in range(plan.planes):
            name = plan.host_port(host, plane).interface
            if name in interfaces:
                port_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
                port_socket.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
                for option in (32, 33):
                    port_socket.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
                port_socket.bind((name, 0x86DD))
                sockets[name] = port_socket
                selector.register(port_socket, selectors.EVENT_READ, plane)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    print("ready", flush=True)
    frame = bytearray(10_000)
    view = memoryview(frame)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                words = sys.stdin.readline().split()
                if not words:
                    return
                cut.clear() if words[0] == "heal" else cut.add((int(words[1]), int(words[2])))
                print("ok", flush=True)
                continue
            for _ in range(64):
                try:
                    size = key.fileobj.recv_into(frame)
                    target_host = route(plan, key.data, frame, size, cut)
                    if target_host is not None:
                        sockets[f"{target_host}-eth{key.data}"].send(view[:size])
                except OSError:
                    break  # nothing waits, or a cable is down


if __name__ == "__main__":
    main()
