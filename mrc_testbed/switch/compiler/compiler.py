"""Compiles a source to a CompiledProgram and caches all results behind the preprocessor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from finsy.proto import p4i

from mrc_testbed.switch.compiler.errors import NOWHERE, Location, P4Error, P4Warning, UnwrittenP4Error
from mrc_testbed.switch.compiler.frontend.preprocess import preprocess
from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError, safe_cache_dir, unwritten, write_whole
from mrc_testbed.switch.system.gcc import build_shared

if TYPE_CHECKING:
    from mrc_testbed.switch.compiler.sema.elaborate import ElaboratedProgram

_COMPILER_DIR = Path(__file__).resolve().parent
RUNTIME_DIR = _COMPILER_DIR.parent / "runtime"


@dataclass(frozen=True)
class CompiledProgram:
    """A program ready to load into a device."""

    name: str
    p4info: p4i.P4Info
    c_path: Path
    """The generated C, to be read beside the P4."""
    library: Path
    """The shared object; exports `p4_program` (switch/runtime/p4rt.h)."""
    config: bytes
    """P4Runtime's p4_device_config for the embedded target: the preprocessed source, with line markers."""
    warnings: tuple[P4Warning, ...] = ()

    def build_traced(self) -> Path:
        """The program built for Device.trace: tells what happens to a packet, and is slower. Raises P4Error."""
        try:
            return build_shared([self.c_path], [RUNTIME_DIR], ("-DP4_TRACE",), tag=f"p4-{self.name}-trace")
        except BuildError as error:
            raise _p4_error(error) from None


def compile_program(
    source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()
) -> CompiledProgram:
    """Compile a P4 file (Path), or the text of a program (str), preprocessed or not.

    `include` are folders for #include, `defines` macros (`NAME` or `NAME=value`). A text that holds no newline and
    names a file is taken as its path. Raises P4Error, UnwrittenP4Error.
    """
    if isinstance(source, str) and "\n" not in source and source.endswith(".p4"):
        source = Path(source)
    name, text = preprocess(source, include, defines)
    try:
        folder = safe_cache_dir()
        digest = hashlib.sha256(compiler_digest() + name.encode() + b"\0" + text.encode("utf-8", "replace"))
        stem = folder / f"{name}-{digest.hexdigest()[:20]}"
        c_path, info_path = stem.with_suffix(".c"), stem.with_suffix(".p4info")
        warnings_path = stem.with_suffix(".warnings")
        if not (c_path.exists() and info_path.exists() and warnings_path.exists()):
            c_text, info, warnings = _translate(name, text)
            write_whole(warnings_path, json.dumps([astuple(warning) for warning in warnings]).encode())
            write_whole(info_path, info.SerializeToString(deterministic=True))
            write_whole(c_path, c_text.encode())
        library = build_shared([c_path], [RUNTIME_DIR], tag=f"p4-{name}")
        warnings_read = [
            P4Warning(Location(*position), *kind_and_message)
            for position, *kind_and_message in json.loads(warnings_path.read_bytes())
        ]
        info, config = p4i.P4Info.FromString(info_path.read_bytes()), text.encode("utf-8", "replace")
        return CompiledProgram(name, info, c_path, library, config, tuple(warnings_read))
    except BuildError as error:
        raise _p4_error(error) from None
    except OSError as error:
        raise _p4_error(unwritten(error.filename, error)) from None


def _p4_error(error: BuildError) -> P4Error:
    kind = UnwrittenP4Error if isinstance(error, FullCacheError) else P4Error
    return kind(None, str(error))


def prepare() -> None:
    """Make what all programs share and the cache lacks: runtime and grammar tables. Raises BuildError."""
    from mrc_testbed.switch.compiler.frontend.parse import prepare_grammar
    from mrc_testbed.switch.device import native

    native.build_ahead()
    prepare_grammar()
    native.runtime()


def check_program(
    source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()
) -> list[P4Warning]:
    """Run all of compile_program but gcc, as an editor wants; return the warnings. Raises P4Error."""
    return _translate(*preprocess(source, include, defines))[2]


def program_info(source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()) -> p4i.P4Info:
    """Check a program as check_program does, and return its P4Info. Raises P4Error."""
    return _translate(*preprocess(source, include, defines))[1]


def translate(source: Path | str) -> str:
    """The C of a program, which gcc has not seen. Raises P4Error."""
    return _translate(*preprocess(source, (), ()))[0]


def front(source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()) -> ElaboratedProgram:
    """The checked program with its instances, for those who want to look at it. Raises P4Error."""
    return _front(*preprocess(source, include, defines))


def _front(name: str, text: str) -> ElaboratedProgram:
    """Preprocessed text -> program. The front end is imported here: a cached program does not need it."""
    from mrc_testbed.switch.compiler.frontend.parse import parse_program
    from mrc_testbed.switch.compiler.sema.check import Checker
    from mrc_testbed.switch.compiler.sema.elaborate import elaborate
    from mrc_testbed.switch.compiler.sema.warn import Names, Values

    with _report_bugs(name):
        nodes = parse_program(text)
        warnings = Names().program(nodes)
        checker = Checker()
        checker.program(nodes)
        checked = [warning for node in nodes for warning in checker.checked(node)]
        program = elaborate(name, nodes, checked, checker.top, checker.errors)
        unique_warnings = dict.fromkeys((*warnings, *checker.warnings, *Values().program(checked)))
        program.warnings = sorted(
            unique_warnings, key=lambda warning: (warning.location.file, warning.location.line, warning.location.column)
        )
        return program


def _translate(name: str, text: str) -> tuple[str, p4i.P4Info, list[P4Warning]]:
    """Preprocessed text -> (C text, P4Info, warnings)."""
    from mrc_testbed.switch.compiler.backend.emit import emit_c
    from mrc_testbed.switch.compiler.p4info.p4info import Ids, make_p4info

    program = _front(name, text)
    with _report_bugs(name):
        ids = Ids(program)
        c_text = emit_c(program, ids)
        return c_text, make_p4info(program, ids), program.warnings


@contextmanager
def _report_bugs(name: str) -> Iterator[None]:
    """Raise an unforeseen exception as a P4Error of the program, with the bug as its cause."""
    try:
        yield
    except P4Error:
        raise
    except RecursionError as error:
        raise _error_at(error, name, "the program is nested too deeply") from None
    except Exception as error:
        description = f"{type(error).__name__}: {error}"
        message = f"internal error in the compiler ({description}): please report it with the program"
        raise _error_at(error, name, message) from error


def _error_at(error: BaseException, name: str, message: str) -> P4Error:
    """Return `message` as an error at the construct that the innermost call was given."""
    location = None
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            value_location = getattr(value, "location", None) or getattr(getattr(value, "decl", None), "location", None)
            if isinstance(value_location, Location) and value_location != NOWHERE:
                location = value_location
                break
    return P4Error(location, message if location else f"{name}: {message}")


@lru_cache(maxsize=1)
def compiler_digest() -> bytes:
    """Digest of the compiler itself: a change of it makes every cached program stale."""
    digest = hashlib.sha256()
    for path in sorted((*_COMPILER_DIR.rglob("*.py"), *_COMPILER_DIR.rglob("*.lark"))):
        digest.update(str(path.relative_to(_COMPILER_DIR)).encode() + b"\0" + path.read_bytes())
    return digest.digest()
