"""A fuzz of both switches: random P4 programs and packets, the embedded switch beside p4c and BMv2.

`mrc fuzz p4`, or `python -m tools.campaigns.p4_fuzz` with the options of `--help`

Each seed gives a program (p4_random.py), its entries and its packets; both switches get them in the same order, and
what leaves each port, what counters hold and what is refused is compared. With programs named, those run with
random packets instead, and with the entries of a script of the same name (`x.stf` beside `x.p4`) if there is one. A
program that gives a difference stays in FOLDER/NAME: program.p4, script.stf, and what each switch sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json as jsonlib
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.compiler.errors import P4Error
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.tools.stf import Command, StfError, parse_script
from mrc_testbed.switch.tools.stf_run import StfRun
from tools.campaigns.bmv2 import Bmv2, Bmv2Error, GoneError, P4cProgram, missing_tools
from tools.campaigns.p4_random import RandomProgram

PACKETS = 24
"""Number of packets for each program."""
CELLS = 16
"""Number of cells of each counter that are compared."""
STATE = frozenset(
    (
        "add",
        "setdefault",
        "mirroring_add",
        "mirroring_add_mc",
        "mc_mgrp_create",
        "mc_node_create",
        "mc_node_associate",
        "member",
        "group",
        "meter",
        "meter_entry",
    )
)
"""Commands of a program's own script that are kept."""
NOT_THE_SAME_TWICE = re.compile(r"\brandom\s*[(<]|_timestamp\b|\btimedelta\b|\bdigest\s*[(<]|\bregister_|execute_meter")
"""Programs that read chance or a clock."""


@dataclass
class FuzzCase:
    """A program with the script that both switches get."""

    name: str
    source: Path
    script: str
    include: tuple[Path, ...] = ()

    def commands(self) -> list[Command]:
        return parse_script(self.script, "script.stf")


@dataclass
class ObservedRun:
    """Observed behaviour of a switch."""

    frames: list[dict[int, list[bytes]]] = field(default_factory=list)
    """Frames of each packet, by port, in order."""
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """(bytes, packets) of the first cells."""

    def text(self) -> str:
        out = []
        for number, ports in enumerate(self.frames, 1):
            out += [
                f"packet {number}: port {port}: {frame.hex()}" for port, frames in ports.items() for frame in frames
            ]
            out += [] if ports else [f"packet {number}: nothing"]
        return "\n".join([*out, *(f"{name}: {cells}" for name, cells in self.counters.items())]) + "\n"


@dataclass
class FuzzVerdict:
    """Verdict on a case.

    `kind`: same, differs, theirs (only p4c or BMv2 refuses), ours (only we refuse), both.
    """

    kind: str
    reason: str = ""
    packets: int = 0
    embedded_run: ObservedRun | None = None
    bmv2_run: ObservedRun | None = None


# ---- both switches


class Pair:
    """The embedded switch and BMv2, one case after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bmv2: Bmv2 | None = None
        self.restarts: Counter[str] = Counter()
        """Reasons for which BMv2 was started anew, and how often."""

    def close(self) -> None:
        if self._bmv2 is not None:
            self._bmv2.stop()
            self._bmv2 = None

    def judge(self, case: FuzzCase) -> FuzzVerdict:
        commands = case.commands()
        packets = sum(command.word == "packet" for command in commands)
        embedded_run: ObservedRun | str
        try:
            embedded_run = self._run_embedded(case, commands)
        except (P4Error, StfError, TableError) as error:
            embedded_run = str(error)
        try:
            bmv2_run: ObservedRun | str = self._run_bmv2(case, commands)
        except (Bmv2Error, StfError) as error:
            bmv2_run = str(error)
        if isinstance(embedded_run, str):
            if isinstance(bmv2_run, str):
                return FuzzVerdict("both", f"ours: {embedded_run}\ntheirs: {bmv2_run}")
            return FuzzVerdict("ours", embedded_run, bmv2_run=bmv2_run)
        if isinstance(bmv2_run, str):
            return FuzzVerdict("theirs", bmv2_run, embedded_run=embedded_run)
        reason = difference(embedded_run, bmv2_run)
        return FuzzVerdict("differs" if reason else "same", reason, packets, embedded_run, bmv2_run)

    def _run_embedded(self, case: FuzzCase, commands: list[Command]) -> ObservedRun:
        program = compile_program(case.source, include=case.include)
        with contextlib.closing(P4Device(1, program.name)) as device:
            device.load(program)
            return self._run(device, program, commands)

    def _run_bmv2(self, case: FuzzCase, commands: list[Command]) -> ObservedRun:
        program = P4cProgram.compile(case.source, self.folder)
        for is_retry in (False, True):
            is_fresh = self._bmv2 is None or not self._bmv2.is_alive
            if is_fresh:
                self._bmv2 = Bmv2(self.folder)
                self._bmv2.start()
            assert self._bmv2 is not None
            try:
                return self._run(self._bmv2.load(program), program, commands)
            except GoneError as error:
                if is_retry:
                    raise
                reason = str(error)
            except Bmv2Error as error:  # of this program, or of what an earlier one has left: a fresh process tells
                if is_fresh:
                    raise
                reason = str(error)
            self.close()
            self.restarts[reason.partition(", of packet")[0]] += 1
        raise AssertionError("not reached")

    @staticmethod
    def _run(device: Any, program: Any, commands: list[Command]) -> ObservedRun:
        run, observed_run = StfRun(device, program), ObservedRun()
        for command in commands:
            run.command(command)
            if command.word == "packet":
                run.wait()
                observed_run.frames.append(dict(sorted(run.out.items())))
                run.out = {}
        for counter in program.p4info.counters:
            cells = range(min(counter.size, CELLS))
            values = [device.read_counter(counter.preamble.id, index)[0][1] for index in cells]
            observed_run.counters[counter.preamble.name] = [(cell.bytes, cell.packets) for cell in values]
        return observed_run


def difference(embedded_run: ObservedRun, bmv2_run: ObservedRun) -> str:
    """The first one; empty: none."""
    for number, (our_frame, their_frame) in enumerate(zip(embedded_run.frames, bmv2_run.frames, strict=True), 1):
        if our_frame == their_frame:
            continue
        for port in sorted({*our_frame, *their_frame}):
            embedded_hex, bmv2_hex = (
                tuple(frame.hex() for frame in port_frames.get(port, [])) for port_frames in (our_frame, their_frame)
            )
            if embedded_hex != bmv2_hex:
                texts = [", ".join(frames) or "-" for frames in (embedded_hex, bmv2_hex)]
                return f"packet {number}, port {port}: ours {texts[0]}; BMv2's {texts[1]}"
    for name, cells in embedded_run.counters.items():
        for index, (cell, their_cell) in enumerate(zip(cells, bmv2_run.counters.get(name, []), strict=False)):
            if cell != their_cell:
                return f"{name}({index}): (bytes, packets) ours {cell}, BMv2's {their_cell}"
    return ""


# ---- what to run


def random_cases(first: int, folder: Path) -> Iterator[FuzzCase]:
    """One for each seed from `first` on; each is written to the same file."""
    seed = first
    while True:
        program = RandomProgram(seed, PACKETS)
        source = folder / "random.p4"
        source.write_text(program.program)
        yield FuzzCase(f"seed-{seed}", source, program.script)
        seed += 1


def sample_cases(programs: Iterable[Path], seed: int) -> Iterator[FuzzCase]:
    """Each program with the entries of its own script, and random packets."""
    for path in programs:
        text = path.read_text(errors="replace")
        if NOT_THE_SAME_TWICE.search(text):
            continue
        rng = random.Random(f"{seed} {path.name}")
        rows, packets = [], []
        stf_path = path.with_suffix(".stf")
        for line in stf_path.read_text(errors="replace").splitlines() if stf_path.exists() else []:
            word = line.split(maxsplit=1)[0].lower() if line.strip() else ""
            if word in STATE:
                rows.append(line)
            elif word == "packet":
                packets.append("".join(line.split()[2:]))
        rows += [f"packet {rng.randrange(8)} {random_packet.hex()}" for random_packet in random_packets(rng, packets)]
        yield FuzzCase(path.stem, path, "\n".join(rows) + "\n", (path.parent,))


def random_packets(rng: random.Random, packets_hex: list[str]) -> Iterator[bytes]:
    """Yield random bytes, headers with random fields, and the program's own packets, changed and cut."""
    ethernet, ipv4 = bytes.fromhex("0000000000010000000000020800"), bytes.fromhex("45000054000000004006")
    valid_packets = [
        bytes.fromhex(packet_hex)
        for packet_hex in packets_hex
        if len(packet_hex) % 2 == 0 and re.fullmatch("[0-9a-fA-F]+", packet_hex)
    ]
    for number in range(PACKETS):
        random_packet = rng.choice((b"", ethernet, ethernet + ipv4)) + rng.randbytes(rng.randrange(1, 100))
        frame = bytearray(rng.choice(valid_packets) if valid_packets and number % 2 else random_packet)
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del frame[rng.randrange(1, len(frame) + 1) :]
        yield bytes(frame)


# ---- the campaign


@dataclass
class FuzzReport:
    """Counts, and the differences by name."""

    counts: Counter[str] = field(default_factory=Counter)
    packets: int = 0
    seconds: float = 0.0
    restarts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Refusals by p4c or BMv2 of programs that we take, by name."""

    @property
    def passed(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        return {
            "programs": sum(self.counts.values()),
            **self.counts,
            "packets": self.packets,
            "seconds": round(self.seconds, 1),
            "restarts": dict(self.restarts),
            "findings": self.findings,
            "refused": self.refusals,
        }

    def text(self) -> str:
        out = [
            f"fuzz p4: {sum(self.counts.values()):,} programs, {self.packets:,} packets on both switches in "
            f"{self.seconds:.0f} s: {self.counts['same']:,} the same, {self.counts['differs']:,} differ, "
            f"{self.counts['ours']:,} only we refuse, {self.counts['theirs']:,} only BMv2's side refuses, "
            f"{self.counts['both']:,} both refuse"
        ]
        if self.restarts:
            out.append(f"simple_switch_grpc was started anew {self.restarts.total()} times:")
            out += [f"  {count} times: {reason}" for reason, count in self.restarts.most_common()]
        out += [f"  {name}: {finding.splitlines()[0]}" for name, finding in self.findings.items()]
        return "\n".join(out)


def campaign(cases: Iterable[FuzzCase], runs: int, seconds: float, out: Path, note: Any = None) -> FuzzReport:
    """Run until `runs` or `seconds` are over; keep in `out` each case that differs or only we refuse."""
    report, began = FuzzReport(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mrc-fuzz-") as name:
        pair = Pair(Path(name))
        try:
            for number, case in enumerate(cases, 1):
                verdict = pair.judge(case)
                report.counts[verdict.kind] += 1
                report.packets += verdict.packets
                report.seconds, report.restarts = time.monotonic() - began, pair.restarts
                if verdict.kind in ("differs", "ours"):
                    report.findings[case.name] = verdict.reason
                    keep(out / case.name, case, verdict)
                elif verdict.kind == "theirs":
                    report.refusals[case.name] = verdict.reason
                if note:
                    note(number, report)
                if number >= runs or report.seconds >= seconds:
                    break
        finally:
            pair.close()
    return report


def keep(folder: Path, case: FuzzCase, verdict: FuzzVerdict) -> None:
    """Write a finding to `folder`: program, script, the difference, and both runs."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "program.p4", case.source.read_bytes())
    write_whole(folder / "script.stf", case.script.encode())
    write_whole(folder / "why.txt", (verdict.reason + "\n").encode())
    for name, observed_run in (("ours.txt", verdict.embedded_run), ("bmv2.txt", verdict.bmv2_run)):
        if observed_run is not None:
            write_whole(folder / name, observed_run.text().encode())


def notes(progress: Progress, runs: int, seconds: float) -> Any:
    """Return the reporter for `campaign`: the terminal's line, else one on stderr every 50 programs."""

    def note(number: int, report: FuzzReport) -> None:
        finding_count = len(report.findings)
        line = f"fuzz p4: {number} of {runs} programs, {finding_count} found, {report.seconds:.0f} s"
        if number % 50 == 0 and not sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)
        progress.share(max(number / runs, report.seconds / seconds), line)

    return note


def fuzz(runs: int, seed: int, seconds: float, out: Path, programs: list[Path], as_json: bool) -> int:
    """Exit code: 0 when both switches agree. Raises Bmv2Error when BMv2 is not there."""
    if missing_names := missing_tools():
        raise Bmv2Error(f"not on PATH: {' and '.join(missing_names)}: the fuzz compares with them")
    with tempfile.TemporaryDirectory(prefix="mrc-fuzz-") as name:
        cases = sample_cases(programs, seed) if programs else random_cases(seed, Path(name))
        with Progress(console(stderr=True), "fuzz p4") as progress:
            report = campaign(cases, runs, seconds, out, notes(progress, min(runs, len(programs) or runs), seconds))
    print(jsonlib.dumps(report.to_json(), indent=1) if as_json else report.text())
    if report.findings:
        print(f"kept in {out}", file=sys.stderr)
    return 0 if report.passed else 1


def main() -> int:
    """Command line: random programs on both switches; exit code 1 when they differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.p4_fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="programs at most")
    parser.add_argument("--seed", type=int, default=1, help="the first program's")
    parser.add_argument("--duration", type=float, default=3600, help="seconds at most")
    parser.add_argument("--out", type=Path, default=Path("fuzz-p4"), help="where findings are kept")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("programs", nargs="*", type=Path, help="these instead of random ones")
    options = parser.parse_args()
    try:
        return fuzz(options.runs, options.seed, options.seconds, options.out, options.programs, options.json)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (Bmv2Error, OSError) as error:
        print(f"fuzz p4: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
