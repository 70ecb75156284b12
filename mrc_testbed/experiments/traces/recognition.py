"""Kind of a trace by its content: schedules, traces, workloads, outputs of NCCL, or a foreign kind.

    kind_of(path)        # one of Kind; TraceError names a foreign kind, and what is read

A folder has the kind of its files.
"""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from mrc_testbed.experiments.traces.errors import TraceError

Kind = Literal[
    "goal",
    "goal binary",
    "chakra",
    "chakra json",
    "kineto",
    "workload text",
    "connection matrix",
    "nccl log",
    "nccl tests",
]
HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a file that tell its kind."""
READABLE = (
    "give a GOAL schedule, a folder of Chakra traces (NAME.RANK.et or NAME.RANK.json) or of a PyTorch profiler's, a "
    "workload of ASTRA-sim 1.0 or SimAI, a connection matrix of htsim, a log of NCCL, or a table of nccl-tests"
)
CONVERTERS = "make Chakra traces of it (chakra_trace_link, then chakra_converter PyTorch)"

FOREIGN: tuple[tuple[str, Callable[[bytes], object], str], ...] = (
    ("a compressed file (gzip)", re.compile(rb"\x1f\x8b").match, "unpack it with gunzip first"),
    ("a compressed file (zstd)", re.compile(rb"\x28\xb5\x2f\xfd").match, "unpack it with unzstd first"),
    ("an archive (zip)", re.compile(rb"PK\x03\x04").match, "unpack it with unzip first"),
    (
        "a capture of packets",
        re.compile(rb"[\xd4\x4d][\xc3\x3c]\xb2\xa1|\xa1\xb2[\xc3\x3c][\xd4\x4d]|\x0a\x0d\x0d\x0a").match,
        "see `mrc pcap`",
    ),
    ("a PyTorch execution trace", re.compile(rb'\s*\{.*"schema"\s*:\s*"1\.\d', re.DOTALL).match, CONVERTERS),
    ("a database of SQLite, as Nsight Systems exports", re.compile(rb"SQLite format 3\0").match, CONVERTERS),
    ("a scenario file", re.compile(rb"(.*\n)?(title|fabric|workload)\s*:", re.DOTALL).match, "run it without --trace"),
)
"""Foreign kinds: the name, the beginning of a file, the cure."""
_CHAKRA_JSON = re.compile(
    rb'\s*\{\s*("version"\s*:[^{}]*\}\s*\{|"id"\s*:|"workload_graph"\s*:|"version"\s*:[^{}]*\}\s*$)', re.DOTALL
)
_KINETO = re.compile(rb'\s*[\[{].*"(traceEvents|distributedInfo|deviceProperties|ph)"\s*:', re.DOTALL)
_GZIP = b"\x1f\x8b"
_GOAL_BINARY = struct.pack("<Q", 4223)
_POLICY = rb"\A\s*(MICRO|DATA|MODEL|DISTRIBUTED_INFERENCE|HYBRID_[A-Z_]+)\b[^\n]*\r?\n\s*\d+\s*($|\n)"
_TEXTS: tuple[tuple[Kind, re.Pattern[bytes]], ...] = (
    ("goal", re.compile(rb"(^|\n|\*/)\s*num_ranks\b")),
    ("workload text", re.compile(_POLICY)),
    ("connection matrix", re.compile(rb"\A(\s*(#[^\n]*)?\n)*\s*Nodes\s+\d+\s")),
    # A log of a test has a table too: the log says more, if it has operations.
    ("nccl log", re.compile(rb" NCCL INFO \w+: opCount ")),
    ("nccl tests", re.compile(rb"#\s+size\s+count\s+type\b")),
    ("nccl log", re.compile(rb" NCCL INFO ")),
)
"""Kinds of text, by what stands in the beginning of a file; the first that fits."""
_BOM = b"\xef\xbb\xbf"


def kind_of(path: Path) -> Kind:
    """Return the kind of a trace, of a folder that of its files. Raises TraceError."""
    if not path.is_dir():
        return _kind_of_file(path)
    files = sorted(file for file in path.iterdir() if file.is_file())
    # Traces under their usual names go before other files of the folder, such as a file of groups.
    named_files = [file for file in files if re.fullmatch(r"(.*\.)?\d{1,6}\.(et|json)", file.name)]
    if not named_files and any(is_kineto(file) for file in files):
        return "kineto"
    if not named_files and any(b" NCCL INFO " in _head(file) for file in files):
        return "nccl log"
    if not named_files:
        present = ", ".join(file.name for file in files[:4]) or "nothing"
        raise TraceError(path, f"no files of ranks in it, but {present}: {READABLE}")
    kind = _kind_of_file(named_files[0])
    if kind == "goal":
        raise TraceError(path, f"{named_files[0].name} is a GOAL schedule, of all ranks in one file: give the file")
    return kind


def is_kineto(path: Path) -> bool:
    """Whether a file is a PyTorch profiler's trace of a rank, plain or with gzip."""
    if not path.name.endswith((".json", ".json.gz")) or not path.is_file():
        return False
    head = _head(path)
    return _KINETO.match(head) is not None and _CHAKRA_JSON.match(head) is None


def _head(path: Path) -> bytes:
    """Return the beginning of a file, unpacked where it is JSON with gzip. Raises TraceError."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(_GZIP) and path.name.endswith(".json.gz"):
            with gzip.open(path, "rb") as packed:
                head = packed.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return head.removeprefix(_BOM)


def _kind_of_file(path: Path) -> Kind:
    head = _head(path)
    if head.startswith(_GOAL_BINARY):
        return "goal binary"
    if _CHAKRA_JSON.match(head):
        return "chakra json"
    if _KINETO.match(head):
        return "kineto"
    for kind, pattern in _TEXTS:
        if pattern.search(head):
            return kind
    for name, matches, cure in FOREIGN:
        if matches(head):
            raise TraceError(path, f"looks like {name}, which is not read here: {cure}")
    if head.lstrip()[:1] in (b"{", b"["):
        raise TraceError(path, f"looks like JSON, but not of a trace: {READABLE}")
    # Binary data, or a name that says so: Chakra's reader tells what is wrong with it.
    is_text = _is_text(head)
    if path.suffix == ".et" or (re.search(r"\.\d+\.\w+$", path.name) and not is_text):
        return "chakra"
    if path.suffix == ".goal":
        return "goal"
    looks = "is empty" if not head.strip() else "looks like text, but of no trace" if is_text else "is binary data"
    raise TraceError(path, f"{looks}: {READABLE}")


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3  # cut within a character
    return True
