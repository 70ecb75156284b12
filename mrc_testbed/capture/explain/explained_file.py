"""A finished capture once more, as pcapng with a comment on each packet: `mrc pcap t0.pcap --explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mrc_testbed.capture.explain.capture_reader import CapturedFrame, CaptureFileError, CaptureReader
from mrc_testbed.capture.explain.explainer import PREFIX, Explainer
from mrc_testbed.capture.explain.link_layer import READABLE, link_name
from mrc_testbed.capture.packet_files import FILE_NAME, PcapngFile
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
    skipped: dict[str, int] = field(default_factory=dict)
    """Counts of what was not read or not written, by its name in the plural."""

    def __str__(self) -> str:
        hosts = f"hosts as in {self.plan}" if self.plan else "hosts by rack: --plan plan.json would name them"
        text = f"{self.explained} of {self.packets} packets of {self.capture} explained in {self.path} ({hosts})"
        skips = ", ".join(f"{count} {name}" for name, count in self.skipped.items())
        return text + (f"; not read: {skips}" if skips else "")

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def explain_file(capture: Path, run_dir: Path, *, out: str | None = None, plan: Path | None = None) -> ExplainedFile:
    """Write the capture with comments.

    `out`: file, `-` for standard output, by default NAME.explained.pcapng.

    `plan`: plan.json of the fabric it is of; by default that of the running one, if there is one. Raises UsageError; of
    a capture that is cut off only after the packets before the cut have been written.
    """
    path = out or str(capture.with_name(f"{_stem(capture)}.explained.pcapng"))
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
                    raise UsageError(damage or _foreign(capture, reader, explainer))
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
    result = ExplainedFile(str(capture), destination, reader.frames, explainer.explained_count, named_by)
    result.skipped = _skipped(reader, explainer)
    return result


def _stem(capture: Path) -> str:
    """Name of a capture without the ending that says so; the number of tcpdump -C stays."""
    ending = FILE_NAME.search(capture.name)
    return capture.name[: ending.start()] + ending["number"] if ending else capture.name


def _skipped(reader: CaptureReader, explainer: Explainer) -> dict[str, int]:
    links = {f"packets of {link_name(kind)}": count for kind, count in explainer.unread_links.items()}
    return {**reader.skipped, **links}


def _foreign(capture: Path, reader: CaptureReader, explainer: Explainer) -> str:
    """Describe a capture that has nothing to explain."""
    text = f"{capture}: no packet of MRC among its first {reader.frames}"
    if skips := ", ".join(f"{count} {name}" for name, count in _skipped(reader, explainer).items()):
        text += f"; not read: {skips}"
    return text + (f" (readable: {READABLE})" if explainer.unread_links else "")


def _copy(reader: CaptureReader, file: PcapngFile, explainer: Explainer) -> None:
    numbers: dict[int, int] = {}
    for frame in reader:
        if reader.frames > FOREIGN_MAX and not explainer.known_count:
            return
        index = frame.interface_index
        if index not in numbers:
            numbers[index] = file.add_interface(frame.interface, frame.link_type)
        file.write(frame.packet, numbers[index], frame.direction, _comments(frame, explainer))


def _comments(frame: CapturedFrame, explainer: Explainer) -> list[bytes]:
    """Ours, then those that others made; what we said before is replaced."""
    own_comment = explainer.comment(
        frame.packet.frame,
        at_ns=frame.packet.at_ns if frame.has_time else None,
        link_type=frame.link_type,
        interface=frame.interface or (f"interface {frame.interface_index}" if frame.interface_index else ""),
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
