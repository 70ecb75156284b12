"""Objects with which a program without the library writes: a queue, a region, and a QP in RTS."""

from __future__ import annotations

import mmap

from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import RawProgram


class Connected:
    """A QP in RTS with a CQ and a region, towards a QP of another host that need not exist."""

    def __init__(self, processes: NicProcesses, program: RawProgram, peer_host: str = "b") -> None:
        with RawProgram(processes.sockets[peer_host]) as peer:
            gid = peer.gid()
        self.processes, self.program = processes, program
        self.pd = program.number("ALLOC_PD")
        error, (self.cq, _), fds = program.call("CREATE_CQ", 256, 0)
        assert error == 0
        self.ring = mmap.mmap(fds[0], 0)
        self.key = program.memory(self.pd)
        self.qpn = program.queue_pair(self.pd, self.cq)
        program.connect(self.qpn, 0x1234, gid)
        self.index = 0

    def status(self) -> int:
        """Return the status of the next completion."""
        entry = None

        def is_there() -> bool:
            nonlocal entry
            entry = self.program.completion(self.ring, self.index)
            return entry is not None

        self.processes.wait_until(is_there)
        self.index += 1
        return entry[2]
