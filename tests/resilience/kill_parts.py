"""Campaign: `kill -9` of each kind of part of `mrc up` under load, with a user at the prompt.

    python -m tests.resilience.kill_parts --kills 50          # root; about 12 s a kill
    python -m tests.resilience.kill_parts --kills 5 --parts switchd h1 --seed 7

After each kill: is it told, and after how long; do words answer while the part is gone; does it come back; does a new
transfer arrive then. `all` kills every part at the same instant. Prints a row for each kind; exit code 1 when
something was not told, hung, did not come back or did not serve.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import time
from dataclasses import dataclass, field

from mrc_testbed.ipc.rundir import RunFiles, default_run_dir
from mrc_testbed.topologies.lab.part_watch import RELAPSE_S
from tests.cli.prompt.terminal import PROMPT, ROOT, Terminal

PARTS = ("switchd", "h1", "controller", "mapper", "all")
WORDS = ("queues", "counters", "links", "faults", "evs h0 h1", "routes")
"""Questions that are asked in turn while a part is gone."""
WORD_LIMIT_S = 60.0
"""A word that has not answered by then hangs: far above what any takes on a busy machine."""
BACK_LIMIT_S = 120.0


@dataclass
class Row:
    """Result of the kills of one kind."""

    part: str
    kills: int = 0
    reports: int = 0
    hung: int = 0
    restarts: int = 0
    services: int = 0
    latest_told_s: float = 0.0
    latest_back_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.reports == self.restarts == self.services == self.kills and not self.hung

    def __str__(self) -> str:
        counts = f"{self.reports:>5} {self.restarts:>10} {self.services:>7} {self.hung:>5}"
        return f"{self.part:<12} {self.kills:>5} {counts} {self.latest_told_s:>10.2f} {self.latest_back_s:>10.2f}"


HEAD = (
    f"{'part':<12} {'kills':>5} {'told':>5} {'restarted':>10} {'served':>7} {'hung':>5} {'told max s':>10} "
    f"{'back max s':>10}"
)


class Front:
    """User at the prompt of `mrc up`."""

    def __init__(self, *options: str) -> None:
        env = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "INPUTRC": "/dev/null", "NO_COLOR": "1"}
        self.files = RunFiles(default_run_dir())
        self.terminal = Terminal(
            [sys.executable, "-m", "mrc_testbed", "up", "--planes", "2", "--hosts-per-rack", "1", *options], env
        )
        self.terminal.expect(PROMPT, 300.0)
        self.load = False

    def pids(self) -> dict[str, int]:
        """Return the pids of the current parts."""
        state = json.loads(self.files.state_file.read_text())
        return {name: process["pid"] for name, process in state["processes"].items()}

    def end_parts(self, pids: dict[str, int]) -> None:
        """Kill these parts."""
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)

    def machine_suffix(self, name: str) -> str:
        """Return the suffix by which the prompt names a part's machine."""
        return ""

    def begin_load(self) -> None:
        """Begin a transfer; the last one may have died with its host."""
        self.terminal.enter("send h0 h1 4M", PROMPT)

    def kill(self, part: str, word: str, row: Row) -> None:
        """Kill one part and record the consequences."""
        row.kills += 1
        pids = {name: pid for name, pid in self.pids().items() if part in (name, "all")}
        kill_time = time.monotonic()
        self.end_parts(pids)
        report_times = self._delays_until(
            {
                name: rf"{name} \(pid {pid}{self.machine_suffix(name)}\) was killed by SIGKILL"
                for name, pid in pids.items()
            },
            kill_time,
        )
        row.reports += len(report_times) == len(pids)
        row.latest_told_s = max(row.latest_told_s, *report_times.values(), 0.0)
        try:
            self.terminal.type(word + "\n")
            self._word_answers()
        except AssertionError as error:
            row.hung += 1
            row.faults.append(f"{word}: {str(error)[:400]}")
        restart_times = self._delays_until(
            {name: rf"{name} runs again \(pid \d+{self.machine_suffix(name)}\)" for name in pids}, kill_time
        )
        row.restarts += len(restart_times) == len(pids)
        row.latest_back_s = max(row.latest_back_s, *restart_times.values(), 0.0)
        row.services += self._serves(row)

    def _delays_until(self, patterns: dict[str, str], start: float) -> dict[str, float]:
        """Return the seconds after `start` at which each pattern was shown, without patterns never shown."""
        delays: dict[str, float] = {}
        output = ""
        try:
            while len(delays) < len(patterns):
                open_patterns = [pattern for name, pattern in patterns.items() if name not in delays]
                output += self.terminal.expect("|".join(open_patterns), BACK_LIMIT_S)
                for name, pattern in patterns.items():
                    if name not in delays and re.search(pattern, output):
                        delays[name] = time.monotonic() - start
        except AssertionError:
            pass
        self.terminal.raw = output + self.terminal.raw  # others look for what came meanwhile
        return delays

    def _word_answers(self) -> None:
        """Check that the prompt answers a second, empty line: so the command before it has ended."""
        marker = f"py 'answered', {random.random()}"
        self.terminal.type(marker + "\n")
        output = self.terminal.expect(re.escape(f"('answered', {marker.split()[-1]})"), WORD_LIMIT_S)
        self.terminal.raw = output + self.terminal.raw  # the part may have come back before the word's answer

    def _serves(self, row: Row) -> bool:
        """Return whether a new transfer arrives; while switches and controller settle, the first may fail."""
        self.terminal.raw = ""
        for _ in range(3):
            try:
                self.terminal.enter("wait", PROMPT)
                self.terminal.enter("send h0 h1 64K", PROMPT)
                if "arrived bit for bit" in self.terminal.raw + self.terminal.enter("wait", PROMPT):
                    return True
            except AssertionError as error:
                row.faults.append(f"send: {str(error)[:400]}")
        return False

    def end(self) -> bool:
        """Type `exit`; return whether the fabric ends with status 0."""
        self.terminal.type("exit\n")
        try:
            return self.terminal.process.wait(BACK_LIMIT_S) == 0
        finally:
            self.terminal.close()


def campaign(parts: tuple[str, ...], kills: int, seed: int) -> tuple[list[Row], bool]:
    """Kill each part so often; a row for each, and whether the fabric then ended well."""
    dice = random.Random(seed)
    front = Front()
    rows = [Row(part) for part in parts]
    try:
        for number in range(kills):
            for row in rows:
                front.begin_load()
                time.sleep(RELAPSE_S + dice.random())  # a part that dies sooner has relapsed, and is given up
                front.kill(row.part, WORDS[number % len(WORDS)], row)
                print(row, *row.faults, sep="\n", file=sys.stderr, flush=True)  # for one that is cut off
    except BaseException:
        front.terminal.close()
        raise
    return rows, front.end()


def main() -> int:
    """Run the campaign; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.resilience.kill_parts", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each part (50)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows, is_ended_well = campaign(tuple(options.parts), options.kills, options.seed)
    print(HEAD)
    for row in rows:
        print(row)
        for fault in row.faults:
            print(f"    {fault}")
    print("exit: ended well" if is_ended_well else "exit: did NOT end")
    return 0 if is_ended_well and all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
