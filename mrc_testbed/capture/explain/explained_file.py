"""A finished capture once more, as pcapng with a comment on each packet: `mrc pcap t0.pcap --explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mrc_testbed.capture.explain.capture_reader import CapturedFrame, CaptureFileError, CaptureReader
from mrc_testbed.capture.explain.explainer import PREFIX, Explainer
from mrc_testbed.capture.packet_files import PcapngFile
from mrc_testbed.errors import DISK_FULL_ERRNOS, UsageError
from mrc_testbed.files.whole_files import whole_file
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.signals import terminating
from mrc_testbed.topologies.plan import Plan

FOREIGN_MAX = 100_000
"""Packets after which a capture without any packet of the testbed is rejected as foreign.

A GB of junk may look like 60 million packets.
"""


@dataclass
class ExplainedFile:
    """Result of explaining a capture file."""

    capture: str
    path: str
    packets: int
    explained: int
    """Packets of MRC or of the RoCEv2 baseline among them."""
    plan: str
    """File of the plan that hosts are named by; empty without one."""

    def __str__(self) -> str:
        hosts = f"hosts as in {self.plan}" if self.plan else "hosts by rack: --plan plan.json would name them"
        return f"{self.explained} of {self.packets} packets of {self.capture} explained in {self.path} ({hosts})"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def explain_file(capture: Path, run_dir: Path, *, out: str | None = None, plan: Path | None = None) -> ExplainedFile:
    """Write the capture with comments.

    `out`: file, `-` for standard output, by default NAME.explained.pcapng.

    `plan`: plan.json of the fabric it is of; by default that of the running one, if there is one. Raises UsageError; of
    a capture that is cut off only after the packets before the cut have been written.
    """
    path = out or str(capture.with_name(f"{capture.stem}.explained.pcapng"))
    if path != "-" and Path(path).resolve() == capture.resolve():
        raise UsageError(f"{path} is the capture itself: give --out another name")
    read, named_by = _plan(run_dir, plan)
    explainer = Explainer(read)
    damage = ""
    try:
        reader = CaptureReader(capture)
        try:
            with terminating(), _output(path) as stream:
                file = PcapngFile(stream, [])
                try:
                    _copy(reader, file, explainer)
                except CaptureFileError as error:
                    damage = str(error)
                if not explainer.known_count:
                    raise UsageError(damage or f"{capture}: no packet of MRC among its first {reader.frames}")
        finally:
            reader.close()
    except CaptureFileError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS or error.filename != path:  # a full disk has an exit code of its own
            raise
        raise UsageError(f"{path}: {error.strerror}") from None
    if damage:
        raise UsageError(f"{damage}; those before are in {'standard output' if path == '-' else path}")
    destination = "standard output" if path == "-" else path
    return ExplainedFile(str(capture), destination, reader.frames, explainer.explained_count, named_by)


def _copy(reader: CaptureReader, file: PcapngFile, explainer: Explainer) -> None:
    numbers: dict[str, int] = {}
    for frame in reader:
        if reader.frames > FOREIGN_MAX and not explainer.known_count:
            return
        name = frame.interface
        if name not in numbers:
            numbers[name] = file.add_interface(name)
        file.write(frame.packet, numbers[name], frame.direction, _comments(frame, explainer))


def _comments(frame: CapturedFrame, explainer: Explainer) -> list[bytes]:
    """Ours, then those that others made; what we said before is replaced."""
    own_comment = explainer.comment(
        frame.packet.frame,
        at_ns=frame.packet.at_ns,
        interface=frame.interface,
        direction=frame.direction,
        size=frame.packet.length,
    )
    return [own_comment.encode(), *(comment for comment in frame.comments if not comment.startswith(PREFIX.encode()))]


def _plan(run_dir: Path, plan_file: Path | None) -> tuple[Plan | None, str]:
    """Return the plan to name hosts by, and its file.

    Raises UsageError for a given file that cannot be read.
    """
    file = plan_file or RunFiles(run_dir).plan_file
    try:
        return Plan.from_json(json.loads(file.read_bytes())), str(file)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        if plan_file is None:
            return None, ""
        cause = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--plan {plan_file}: {cause}; give the plan.json of a run folder") from None


@contextmanager
def _output(path: str) -> Iterator[BinaryIO]:
    """A file that is there when all went well, and not before; or standard output."""
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with whole_file(Path(path)) as stream:
        yield stream
