"""CPU seconds that the parts of a running fabric have used, for the share of each in a job's step."""

from __future__ import annotations

from collections.abc import Iterable

from mrc_testbed.hosts.nicd.status import nic_pid
from mrc_testbed.ipc.procfs import cpu_seconds
from mrc_testbed.ipc.rundir import RunFiles, read_json

NICS, AGENTS, SWITCHES = "NIC processes", "agents", "switches"


def fabric_pids(files: RunFiles, hosts: Iterable[str]) -> dict[str, list[int]]:
    """Return the processes of each part of a fabric; of NIC processes and agents those of some hosts.

    A part without a process is left out: BMv2's switches are no process of ours.
    """
    pids = {name: int(entry["pid"]) for name, entry in read_json(files.state_file)["processes"].items()}
    names = list(hosts)
    out = {
        NICS: [pid for name in names if (pid := nic_pid(files.nic_socket(name))) is not None],
        AGENTS: [pids[name] for name in names if name in pids],
        SWITCHES: [pids["switchd"]] if "switchd" in pids else [],
    }
    return {part: part_pids for part, part_pids in out.items() if part_pids}


class CpuShares:
    """CPU of parts by steps of a job: from the end of the first step to that of the last."""

    def __init__(self) -> None:
        self._first: dict[str, float] | None = None
        self._last: dict[str, float] = {}
        self._steps = 0

    def end_step(self, pids: dict[str, list[int]]) -> None:
        """Read what the parts have used when a step has ended."""
        used_s = {}
        for part, part_pids in pids.items():
            try:
                used_s[part] = sum(map(cpu_seconds, part_pids))
            except OSError:  # a process has ended: the step before was the last one counted
                return
        if self._first is None:
            self._first = used_s
        else:
            self._last, self._steps = used_s, self._steps + 1

    def seconds_a_step(self) -> dict[str, float]:
        """Return the mean CPU seconds of a step by part; empty before two steps have ended."""
        if self._first is None or not self._steps:
            return {}
        first = self._first
        return {part: (used_s - first[part]) / self._steps for part, used_s in self._last.items() if part in first}
