#!/usr/bin/env python3
"""A write between two hosts of a running fabric, over their NIC ports, with the verbs.

Needs root and `mrc up`.
At the Mininet prompt of `mrc up`, started in the checkout:

    mininet> h2 .venv/bin/python examples/live_write.py serve &
    mininet> h0 .venv/bin/python examples/live_write.py write h2 --megabytes 16
    h0: 16.0 MiB to h2 in 0.37 s, 365 Mb/s over 4 planes (1024 1024 1025 1024 packets), SHA-256 equal

The agents of the hosts may run at the same time. What the two ends tell each other goes through a Unix socket in the
run folder, which stands for the management network.
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import (
    IBV_WR_RDMA_WRITE_WITH_IMM,
    Device,
    LocalError,
    PeerError,
    QpInitAttr,
    QpState,
    QpType,
    RecvWR,
    SendWR,
    establish,
)
from mrc_testbed.hosts.verbs.live import open_device
from mrc_testbed.ipc.rundir import default_run_dir

CHUNK = 1 << 18
DEPTH = 8
"""Writes posted and not completed at one time."""


def main() -> int:
    """Run the role that the command line names; exit code 1 for a refusal or a hash that differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("serve", "write"))
    parser.add_argument("peer", nargs="?", help="write: name of the host that serves")
    parser.add_argument("--host", help="our own name, when it cannot be seen from the interfaces")
    parser.add_argument("--megabytes", type=float, default=8.0)
    parser.add_argument("--rocev2", action="store_true", help="the baseline transport, at both ends")
    parser.add_argument("--thread", action="store_true", help="the device works in the background")
    parser.add_argument("--run-dir", type=Path, default=default_run_dir())
    arguments = parser.parse_args()
    if (arguments.role == "write") != (arguments.peer is not None):
        parser.error("`write PEER` or `serve`")
    try:
        with open_device(arguments.host, run_dir=arguments.run_dir, config=Config(), thread=arguments.thread) as device:
            return serve(device, arguments) if arguments.role == "serve" else write(device, arguments)
    except (LocalError, PeerError) as error:
        print(f"live_write: {error}", file=sys.stderr)
        return 1


def serve(device: Device, arguments: argparse.Namespace) -> int:
    """Offer a region, wait for the WriteIMM that says all is there, answer with the hash."""
    size = 1 << 28
    mr = device.reg_mr(bytearray(size))
    cq = device.create_cq(64)
    qp = device.create_qp(QpInitAttr(cq, qp_type=QpType.RC if arguments.rocev2 else QpType.MRC))
    print(f"{device.name}: serving", flush=True)
    peer_mr = establish(qp, arguments.run_dir / f"live_write.{device.name}.sock", listen=True, mr=mr)
    qp.post_recv(RecvWR(1))
    for wc in cq.wait(timeout_s=60):
        if not wc.ok:
            raise LocalError(f"{wc.status.name}: {wc.detail}")
        length = wc.imm_data * 4096
        digest = hashlib.sha256(mr.view[:length]).digest()
        remote = (peer_mr.addr, peer_mr.rkey)
        answer = device.reg_mr(digest, 0)
        qp.post_send(
            SendWR(
                2,
                sg_list=[answer.sge()],
                remote_addr=remote[0],
                rkey=remote[1],
                opcode=IBV_WR_RDMA_WRITE_WITH_IMM,
                imm_data=0,
            )
        )
        cq.wait(timeout_s=10)
        device.run(0.3)  # the peer may not have seen our acknowledgment yet
        print(f"{device.name}: {length} bytes from {qp.peer}", flush=True)
        return 0
    print(f"{device.name}: nothing came within 60 s", file=sys.stderr)
    return 1


def write(device: Device, arguments: argparse.Namespace) -> int:
    """Write random bytes, then a WriteIMM with their number, and compare the hash that comes back."""
    length = max(1, round(arguments.megabytes * 256)) * 4096
    source, answer = device.reg_mr(bytearray(os.urandom(length)), 0), device.reg_mr(bytearray(32))
    cq = device.create_cq(64)
    qp = device.create_qp(QpInitAttr(cq, qp_type=QpType.RC if arguments.rocev2 else QpType.MRC))
    peer_mr = establish(qp, arguments.run_dir / f"live_write.{arguments.peer}.sock", listen=False, mr=answer)
    qp.post_recv(RecvWR(99))
    began, posted, bytes_done = time.monotonic(), 0, 0
    while bytes_done < length:
        while posted < length and qp.outstanding < DEPTH:
            size = min(CHUNK, length - posted)
            element = [source.sge(posted, size)]
            qp.post_send(SendWR(size, sg_list=element, remote_addr=peer_mr.addr + posted, rkey=peer_mr.rkey))
            posted += size
        # An empty list means a timeout: None stands for it, so that both failures raise below.
        for wc in cq.wait(timeout_s=30) or [None]:
            if wc is None or not wc.ok:
                raise LocalError("no completion within 30 s" if wc is None else f"{wc.status.name}: {wc.detail}")
            bytes_done += wc.byte_len
    took = time.monotonic() - began
    qp.post_send(
        SendWR(
            1, remote_addr=peer_mr.addr, rkey=peer_mr.rkey, opcode=IBV_WR_RDMA_WRITE_WITH_IMM, imm_data=length // 4096
        )
    )
    cq.wait(2, timeout_s=60)
    equal = bytes(answer.view) == hashlib.sha256(source.view).digest()
    packets = qp.counters.plane_packets
    planes = f"{sum(1 for n in packets if n)} planes ({' '.join(map(str, packets))} packets)"
    rate = length * 8 / took / 1e6
    verdict = "equal" if equal else "DIFFERENT"
    print(
        f"{device.name}: {length / 2**20:.1f} MiB to {qp.peer} in {took:.2f} s, {rate:.0f} Mb/s over {planes}, "
        f"SHA-256 {verdict}"
    )
    assert qp.state is QpState.RTS
    device.run(0.3)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
