"""Public programs: what we say of them, beside p4c.

`python -m tools.campaigns.p4corpus FOLDER...` with the options of `--help`

Each v1model program under the folders (a file that makes a `V1Switch`) is checked and gets its P4Info; where p4c is on
PATH, it compiles the program too. A program of the same text is judged once. Each folder is a row of the table and the
place where missing includes are looked for, so give one folder for each repository. The verdicts of a program:

    same        both take it, and P4Info is equal in all that entries depend on
    differs     both take it, and P4Info is not equal
    ours        only we refuse it; also an internal error of ours, whatever p4c says
    theirs      only p4c refuses it
    wider       only p4c refuses it, for reasons in docs/p4-target.md: taken here on purpose
    both        both refuse it
    accepted, refused     without p4c

`--record FILE` keeps each half of each verdict: a later run does only what is new, or was judged by another compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.switch.compiler import P4Error
from mrc_testbed.switch.compiler.compiler import compiler_digest, prepare, program_info
from mrc_testbed.switch.server.p4runtime.pipeline import first_difference
from tools.campaigns.bmv2 import COMPILER, P4cProgram, RefusedError
from tools.campaigns.work_limit import OutOfTimeError, work_limit

OURS_CPU_S = 300
"""Longest time of our compiler at a program, seconds of CPU."""
MAIN = re.compile(r"\bV1Switch\s*(?:<[^;()]*>\s*)?\(")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
OWN_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
P4C_OUTPUTS = re.compile(r"_outputs\b")
"""Folders of what p4c printed of other programs in the same repository."""
TAKEN_HERE = re.compile(
    r"""
    does.not.support.for-in.loops
    | (?:clone3|resubmit|recirculate):.unknown.extern.function
    | Expected.1.argument.for.mark_to_drop
    | anonymous.table.property
    | conflicting.control.plane.name
    | contains.a.path.from.table | has.multiple.successors
    | not.supported.within.a.deparser | Only.calls.to.update_checksum | Computations.are.not.supported
    | expected.a.struct
    | a.parameter.with.type.\w+.cannot.have.a.direction
    | slice.bit.index.values.must.be.constants
    | next.uninitialized:.next.field.read
    | error\.\w+:.unsupported.exact.key.expression
    | width.not.well-defined.for.values.of.type
    | Unsupported.type.argument.for.Value.Set
    | Compiler.Bug | takes.more.than.\d+.s
    """,
    re.X,
)
"""Errors of p4c at what we take on purpose; docs/p4-target.md ("Wider than p4c") has the reasons."""
KINDS = ("same", "differs", "ours", "theirs", "wider", "both", "accepted", "refused")
FINDINGS = ("differs", "ours", "theirs")
INTERNAL = "internal error"


@dataclass(frozen=True)
class CorpusProgram:
    """A program of the corpus: its repository, which is a row of the table, and a digest of its text."""

    root: Path
    path: Path
    digest: str

    @property
    def row(self) -> str:
        return self.root.resolve().name


@dataclass(frozen=True)
class CompilerOptions:
    """Folders for #include and macros that both compilers get."""

    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompilerResult:
    """One compiler's result: P4Info as text, or the message of its refusal."""

    p4info: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class CorpusVerdict:
    """Verdict on a program; `reason` is a difference or the refusals."""

    program: CorpusProgram
    kind: str
    reason: str = ""


# ---- the programs


def corpus_programs(folders: Sequence[Path], outputs: bool = False) -> Iterator[CorpusProgram]:
    """Each v1model program once. A program that includes files of its own is another one in each folder."""
    known_digests: set[str] = set()
    for folder in folders:
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*.p4")):
            if not path.is_file() or (not outputs and P4C_OUTPUTS.search(str(path))):
                continue
            text = path.read_text(errors="replace")
            code = COMMENT.sub(" ", text)
            has_own_files = OWN_INCLUDE.search(code)
            if not any(MAIN.search(part) for part in (code, *_own_texts(path, code))):
                continue
            key = str(path.parent) + text if has_own_files else text
            digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:20]
            if digest not in known_digests:
                known_digests.add(digest)
                yield CorpusProgram(folder, path, digest)


def _own_texts(path: Path, code: str) -> Iterator[str]:
    """Texts of the files beside a program that it includes: one of them may make the switch."""
    for name in OWN_INCLUDE.findall(code):
        file = path.parent / name
        if file.is_file():
            yield COMMENT.sub(" ", file.read_text(errors="replace"))


@lru_cache(maxsize=8)
def files_by_name(root: Path) -> dict[str, list[Path]]:
    """Every file of a repository, by its last name."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in root.rglob("*") if root.is_dir() else ():
        if path.is_file():
            files[path.name].append(path)
    return files


def include_folders(program: CorpusProgram) -> list[Path]:
    """Return the folders for -I that the program needs.

    Repositories name them in makefiles, in as many ways as there are. A file that is not found from where it is
    included is looked for by name in the whole repository; the one nearest to the program is taken.
    """
    folders: list[Path] = []
    pending, visited_files = [program.path], {program.path}
    while pending:
        file = pending.pop()
        for name in INCLUDE.findall(COMMENT.sub(" ", file.read_text(errors="replace"))):
            source = next((path for folder in (file.parent, *folders) if (path := folder / name).is_file()), None)
            candidates = [path for path in files_by_name(program.root)[Path(name).name] if path.match(name)]
            if source is None and candidates:
                source = max(candidates, key=lambda path: len(os.path.commonpath((path, program.path))))
                folders.append(source.parents[len(Path(name).parts) - 1])
            if source is not None and source not in visited_files:
                visited_files.add(source)
                pending.append(source)
    return folders


# ---- both compilers


def compile_ours(path: Path, options: CompilerOptions) -> CompilerResult:
    """Check a program and make its P4Info. An exception is a refusal as well: it must show in the table."""
    try:
        with work_limit(OURS_CPU_S):
            return CompilerResult(
                text_format.MessageToString(program_info(path, include=options.include, defines=options.defines))
            )
    except P4Error as error:
        return CompilerResult(refusal=str(error))
    except OutOfTimeError:
        return CompilerResult(refusal=f"{INTERNAL}: not done in {OURS_CPU_S} s of work")
    except Exception as error:
        return CompilerResult(refusal=f"{INTERNAL}: {type(error).__name__}: {error}")


def compile_p4c(path: Path, options: CompilerOptions) -> CompilerResult:
    """Compile by p4c's v1model back end."""
    with tempfile.TemporaryDirectory(prefix="mrc-p4corpus-") as name:
        folder = Path(name)
        path = plain_folder(path.parent, folder / "source") / path.name
        include = [plain_folder(path, folder / f"include{number}") for number, path in enumerate(options.include)]
        try:
            program = P4cProgram.compile(path, folder, include, options.defines)
        except RefusedError as error:
            return CompilerResult(refusal="\n".join((str(error), *error.messages[1:])))
    return CompilerResult(text_format.MessageToString(program.p4info))


def plain_folder(folder: Path, link: Path) -> Path:
    """Return a path of a folder that a shell takes as it is: `link` to it where needed."""
    if re.fullmatch(r"[\w/.,:@%+=-]+", str(folder), re.A):
        return folder
    link.symlink_to(folder.resolve())
    return link


def compile_both(
    program: CorpusProgram, options: CompilerOptions, sides: Sequence[str]
) -> tuple[CorpusProgram, dict[str, CompilerResult]]:
    """Results of the sides that are asked for."""
    compilers = {"ours": compile_ours, "p4c": compile_p4c}
    options = replace(options, include=(*options.include, *include_folders(program)))
    return program, {side: compilers[side](program.path, options) for side in sides}


def verdict(program: CorpusProgram, our_result: CompilerResult, p4c_result: CompilerResult | None) -> CorpusVerdict:
    """Compare both results; `p4c_result` is None where it is not installed."""
    refusals = [result.refusal for result in (our_result, p4c_result) if result is not None and result.refusal]
    if INTERNAL in our_result.refusal:
        return CorpusVerdict(program, "ours", our_result.refusal)
    if p4c_result is None:
        return CorpusVerdict(program, "refused" if refusals else "accepted", our_result.refusal)
    if len(refusals) == 2:
        return CorpusVerdict(program, "both", "\n".join(refusals))
    if our_result.refusal:
        return CorpusVerdict(program, "ours", our_result.refusal)
    if p4c_result.refusal:
        is_wider = all(map(TAKEN_HERE.search, p4c_result.refusal.splitlines()))
        return CorpusVerdict(program, "wider" if is_wider else "theirs", p4c_result.refusal)
    p4c_info, our_info = (text_format.Parse(result.p4info, p4i.P4Info()) for result in (p4c_result, our_result))
    difference = first_difference(p4c_info, our_info)
    return CorpusVerdict(program, "differs" if difference else "same", difference or "")


@lru_cache(maxsize=1)
def p4c_version() -> str:
    """Version of p4c on PATH; empty: there is none."""
    if shutil.which(COMPILER) is None:
        return ""
    process = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=False)
    lines = (process.stdout + process.stderr).strip().splitlines()
    return lines[-1] if lines else "unknown"


# ---- what is known already


class CorpusRecord:
    """The results so far, a line of JSON each: a run that was broken off goes on where it stopped."""

    def __init__(self, path: Path | None, versions: dict[str, str]) -> None:
        self._path, self._versions = path, versions
        self._results: dict[tuple[str, str], CompilerResult] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else []:
            try:
                row = json.loads(line)
                if row["version"] == versions.get(row["side"]):
                    self._results[row["digest"], row["side"]] = CompilerResult(row["p4info"], row["refusal"])
            except (ValueError, KeyError):  # a line that was cut when the run ended
                continue

    def get(self, program: CorpusProgram, side: str) -> CompilerResult | None:
        """Return the result of `side` by the compiler of today; None: it is not known."""
        return self._results.get((program.digest, side))

    def missing_sides(self, program: CorpusProgram) -> list[str]:
        """Sides that have not judged the program."""
        return [side for side in self._versions if (program.digest, side) not in self._results]

    def add(self, program: CorpusProgram, side: str, result: CompilerResult) -> None:
        """Keep a result, in the file at once."""
        self._results[program.digest, side] = result
        if self._path is not None:
            row = {"digest": program.digest, "side": side, "version": self._versions[side], **vars(result)}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


# ---- the campaign


def message_kind(reason: str) -> str:
    """A message without its place, names and numbers: what messages of the same kind share."""
    line = re.sub(r"^(?:p4c refuses \S+: )?(?:\S+?\(\d+\): ?|\S+?:\d+:(?:\d+:)? ?)?", "", reason.splitlines()[0])
    line = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "X", line)
    return re.sub(r"\d+", "N", line)[:110]


@dataclass
class CorpusReport:
    """Counts for each row, and the verdicts that need a look."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    verdicts: list[CorpusVerdict] = field(default_factory=list)

    def add(self, new_verdict: CorpusVerdict) -> None:
        self.counts[new_verdict.program.row][new_verdict.kind] += 1
        if new_verdict.reason:
            self.verdicts.append(new_verdict)

    @property
    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    @property
    def passed(self) -> bool:
        return not any(self.total[kind] for kind in FINDINGS)

    def groups(self, kind: str) -> list[tuple[str, list[CorpusVerdict]]]:
        """Verdicts of a kind by the kind of their message, most frequent first."""
        by_message: dict[str, list[CorpusVerdict]] = defaultdict(list)
        for corpus_verdict in self.verdicts:
            if corpus_verdict.kind == kind:
                by_message[message_kind(corpus_verdict.reason)].append(corpus_verdict)
        return sorted(by_message.items(), key=lambda group: (-len(group[1]), group[0]))

    def to_json(self) -> dict[str, Any]:
        return {
            "programs": self.total.total(),
            "p4c": p4c_version() or None,
            "counts": dict(self.total),
            "folders": {row: dict(counts) for row, counts in sorted(self.counts.items())},
            "verdicts": [
                {"program": str(program.path), "kind": kind, "reason": reason}
                for program, kind, reason in map(attrgetter("program", "kind", "reason"), self.verdicts)
            ],
        }

    def text(self) -> str:
        kinds = [kind for kind in KINDS if self.total[kind]]
        width = max((len(row) for row in self.counts), default=0)
        out = [f"{self.total.total():,} programs of {len(self.counts)} folders; p4c: {p4c_version() or 'not on PATH'}"]
        for row, counts in [*sorted(self.counts.items()), ("all", self.total)]:
            out.append(f"  {row:{width}}  " + ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]))
        for kind in kinds:
            for message, group in self.groups(kind):
                out.append(f"{kind}, {len(group)} times: {message}")
                out.append(f"    {group[0].program.path}: {group[0].reason.splitlines()[0]}")
        return "\n".join(out)


def campaign(
    programs: Iterable[CorpusProgram], options: CompilerOptions, record: CorpusRecord, jobs: int, note: Any = None
) -> CorpusReport:
    """Judge all programs, `jobs` at a time."""
    known_programs = list(programs)
    work = [(program, sides) for program in known_programs if (sides := record.missing_sides(program))]
    prepare()
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(compile_both, program, options, sides) for program, sides in work]
        for number, future in enumerate(as_completed(futures), 1):
            program, results = future.result()
            for side, result in results.items():
                record.add(program, side, result)
            if note:
                note(number, len(futures), program)
    report = CorpusReport()
    for program in known_programs:
        our_result = record.get(program, "ours")
        assert our_result is not None
        report.add(verdict(program, our_result, record.get(program, "p4c")))
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 when the compilers disagree."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.p4corpus", description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="repositories, or single programs")
    parser.add_argument("-I", "--include", type=Path, action="append", default=[], help="folder for #include")
    parser.add_argument("-D", "--define", action="append", default=[], help="macro NAME or NAME=VALUE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--record", type=Path, help="results so far; a run goes on from there")
    parser.add_argument("--outputs", action="store_true", help="what p4c printed of other programs (*_outputs) too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    if missing_folders := [str(folder) for folder in options.folders if not folder.exists()]:
        parser.error(f"no such file or folder: {', '.join(missing_folders)}")
    compiler_options = CompilerOptions(tuple(options.include), tuple(options.define))
    versions = {"ours": compiler_digest().hex()[:20]} | ({"p4c": p4c_version()} if p4c_version() else {})
    versions = {side: f"{version} {compiler_options}" for side, version in versions.items()}
    with Progress(console(stderr=True), "p4corpus") as progress:

        def note(number: int, total: int, program: CorpusProgram) -> None:
            line = f"p4corpus: {number} of {total} programs, {program.row}"
            if number % 50 == 0 and not sys.stderr.isatty():
                print(line, file=sys.stderr, flush=True)
            progress.share(number / total, line)

        try:
            programs = corpus_programs(options.folders, options.outputs)
            report = campaign(programs, compiler_options, CorpusRecord(options.record, versions), options.jobs, note)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    print(json.dumps(report.to_json(), indent=1) if options.json else report.text())
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
