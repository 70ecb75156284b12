"""Source text -> one preprocessed text with line markers, by the real `cpp`.

Line markers (`# 12 "file.p4"`) stay in the text, for it travels as P4Runtime device config and its errors must still
name the author's file. cpp collapses white space; lines that it did not otherwise change are put back as they stand in
the file, so that columns are right too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from mrc_testbed.switch.compiler.errors import Location, P4Error

INCLUDE_DIR = Path(str(files("mrc_testbed.switch"))) / "include"
CPP_TIMEOUT_S = 20
"""A bound: macros that grow without end keep cpp at work, so its progress says nothing."""
MAX_TEXT_BYTES = 8 << 20
"""Longest preprocessed program. Macros can make an endless text of a short one."""

MARKER = re.compile(r'^#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"[ \d]*$')
_CPP_MESSAGE = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<col>\d+):)? (?:fatal )?error: (?P<text>.*)$", re.M)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b(.*)$", re.M)
_BUILT_IN_INCLUDES = ("<core.p4>", "<v1model.p4>", '"core.p4"', '"v1model.p4"')


def preprocess(source: Path | str, include: Sequence[Path | str], defines: Sequence[str]) -> tuple[str, str]:
    """(name, preprocessed text) of a file (Path), or of program text (str).

    A text that begins with a line marker is already preprocessed and comes back as it is; any other text goes
    through cpp, but may include only our own core.p4 and v1model.p4: it may have come over the network.
    Raises P4Error for what cpp refuses, a missing cpp or an unreadable file.
    """
    if isinstance(source, Path):
        if not source.is_file():
            raise P4Error(None, f"{source}: no such file")
        text = _run_cpp([str(source)], None, include, defines)
        return _word(source.stem), _restore_lines(text)
    if MARKER.match(source.split("\n", 1)[0]):
        return _name_in(source), source
    for match in _INCLUDE.finditer(source):
        if match.group(1).strip() not in _BUILT_IN_INCLUDES:
            line = source.count("\n", 0, match.start()) + 1
            file_name = match.group(1).strip()
            raise P4Error(
                Location("program.p4", line, 1),
                f"a program given as text may include only {_BUILT_IN_INCLUDES[0]} and {_BUILT_IN_INCLUDES[1]}, "
                f"not {file_name}: preprocess it first, or compile the file",
            )
    text = _run_cpp(["-"], source, include, defines).replace('"<stdin>"', '"program.p4"')
    for text_line in text.splitlines():
        marker = MARKER.match(text_line)
        file = marker[2] if marker else "program.p4"
        if file != "program.p4" and file[0] != "<" and INCLUDE_DIR not in Path(file).parents:
            raise P4Error(None, f"a program given as text may not include {file}")
    return "program", text


def _run_cpp(files: list[str], stdin: str | None, include: Sequence[Path | str], defines: Sequence[str]) -> str:
    command = ["cpp", "-C", "-undef", "-nostdinc", "-x", "assembler-with-cpp", "-I", str(INCLUDE_DIR)]
    for folder in include:
        command += ["-I", str(folder)]
    command += [f"-D{define}" for define in ("__p4c__=1", *defines)]
    try:
        process = subprocess.run(
            [*command, *files],
            input=None if stdin is None else stdin.encode("utf-8", "surrogateescape"),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=CPP_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise P4Error(None, "cpp is not on PATH: install it (Debian, Ubuntu: apt-get install cpp)") from None
    except subprocess.TimeoutExpired:
        raise P4Error(None, f"cpp did not end within {CPP_TIMEOUT_S} s: macros that grow without end?") from None
    if process.returncode:
        raise _cpp_error(process.stderr.decode("utf-8", "replace"), include)
    if len(process.stdout) > MAX_TEXT_BYTES:
        size = len(process.stdout)
        raise P4Error(None, f"the preprocessed program has {size} bytes; at most {MAX_TEXT_BYTES} are taken")
    return _blank_comments(process.stdout.decode("utf-8", "replace"))


def _search_folders(include: Sequence[Path | str]) -> str:
    folders = ", ".join(map(str, (*include, INCLUDE_DIR)))
    return f"the file's own folder, {folders}; -I adds a folder, and core.p4 and v1model.p4 are built in"


def _cpp_error(stderr: str, include: Sequence[Path | str]) -> P4Error:
    match = _CPP_MESSAGE.search(stderr)
    if not match:
        return P4Error(None, f"cpp failed: {stderr.strip() or 'no message'}")
    file = match["file"].replace("<stdin>", "program.p4")
    text = match["text"]
    if text.endswith("No such file or directory"):
        text = f"cannot include {text.split(':')[0]}: no such file (searched: {_search_folders(include)})"
    return P4Error(Location(file, int(match["line"]), int(match["col"] or 0)), text)


def _name_in(text: str) -> str:
    """Name of a preprocessed program: the first real file its line markers name."""
    for line in text.splitlines():
        match = MARKER.match(line)
        if match and not match[2].startswith("<"):
            return _word(Path(match[2]).stem)
    return "program"


def _word(stem: str) -> str:
    """A file's name as a name for the program: it becomes part of file names in the cache."""
    return re.sub(r"\W", "_", stem, flags=re.A)[:60] or "program"


@lru_cache(maxsize=64)
def _lines_of(file: str, _stamp: int) -> list[str]:
    text = Path(file).read_text("utf-8", "replace")
    return _blank_comments(text).split("\n")


def _blank_comments(text: str) -> str:
    """Return `text` with comments replaced by as many blanks, lines kept.

    Strings are left alone: one may span lines, and what looks like a comment in it is part of it.
    cpp does not know these, so it leaves the comments in (-C). A line that begins with # is left alone too: a quote in
    it (`# don't say "x`) begins no string.
    """
    pattern = r'^[ \t]*#[^\n]*|"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/'

    def blank(match: re.Match[str]) -> str:
        text = match.group()
        return re.sub(r"[^\n]", " ", text) if text[0] == "/" else text

    return re.sub(pattern, blank, text, flags=re.S | re.M)


def _without_blanks(line: str) -> str:
    return re.sub(r"\s+", "", line)


def _restore_lines(text: str) -> str:
    """Put the author's white space back where cpp changed nothing else."""
    out: list[str] = []
    lines: list[str] = []
    number = 0
    for line in text.split("\n"):
        match = MARKER.match(line)
        if match:
            lines, number = _author_lines(match[2]), int(match[1])
        else:
            if (
                line.strip()
                and 1 <= number <= len(lines)
                and _without_blanks(lines[number - 1]) == _without_blanks(line)
            ):
                line = lines[number - 1].rstrip()
            number += 1
        out.append(line)
    return "\n".join(out)


def _author_lines(file: str) -> list[str]:
    """The lines of a file that a marker names; none when it is no file (`<built-in>`)."""
    try:
        path = Path(file)
        return _lines_of(file, path.stat().st_mtime_ns) if path.is_file() else []
    except (OSError, ValueError):
        return []
