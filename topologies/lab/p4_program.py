"""Compile a P4 program for a target into P4Info text and the target's device config."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mrc_testbed.errors import FullDiskError, UsageError
from mrc_testbed.files.package import P4_PROGRAMS
from mrc_testbed.files.whole_files import write_whole

if TYPE_CHECKING:
    from finsy.proto import p4i

    from mrc_testbed.switch.compiler import CompiledProgram

CONFIG_NAME = {"embedded": "config.p4", "bmv2": "config.json"}


class ProgramError(UsageError):
    """A P4 program does not exist or does not compile; the message carries the compiler's words."""


class UnwrittenProgramError(ProgramError, FullDiskError):
    """The disk of the cache did not take what is made of a P4 program."""


def programs() -> list[str]:
    """Names of the programs that come with the checkout and have a `main`."""
    return sorted(p.stem for p in P4_PROGRAMS.glob("*.p4") if "V1Switch(" in p.read_text(encoding="utf-8"))


def source_of(program: str) -> Path:
    """Path of a program: a name in p4src/ or a path to a .p4 file. Raises ProgramError."""
    path = Path(program) if program.endswith(".p4") else P4_PROGRAMS / f"{program}.p4"
    if not path.is_file():
        raise ProgramError(f"no P4 program {program!r} (has: {', '.join(programs())}; or a path to a .p4 file)")
    return path


def compile_program(folder: Path, target: str, program: str) -> None:
    """Write `p4info.txtpb` and the device config of `program` for `target` into `folder`.

    Raises ProgramError with file:line:column messages, or naming the compiler that is missing.
    """
    source = source_of(program)
    folder.mkdir(parents=True, exist_ok=True)
    if target == "embedded":
        _compile_embedded(source, folder)
    elif target == "bmv2":
        _compile_bmv2(source, folder)
    else:
        raise ProgramError(f"no target {target!r} (has: {', '.join(CONFIG_NAME)})")


def _compile_embedded(source: Path, folder: Path) -> None:
    from mrc_testbed.switch.compiler import P4Error, UnwrittenP4Error
    from mrc_testbed.switch.compiler import compile_program as compile_p4
    from mrc_testbed.switch.device.native import build_ahead

    build_ahead()  # the daemon's; it starts next
    try:
        result = compile_p4(source)
    except UnwrittenP4Error as error:
        raise UnwrittenProgramError(str(error)) from error
    except P4Error as error:
        raise ProgramError(str(error)) from error
    write_program(folder, result)


def write_program(folder: Path, program: CompiledProgram) -> None:
    """Write P4Info and device config of a program for embedded switches, as the controller reads them."""
    from google.protobuf import text_format

    write_whole(folder / "p4info.txtpb", text_format.MessageToString(program.p4info).encode())
    write_whole(folder / CONFIG_NAME["embedded"], program.config)


def read_info(folder: Path) -> p4i.P4Info:
    """Return the P4Info in a folder of a program."""
    from finsy.proto import p4i as protocol
    from google.protobuf import text_format

    return text_format.Parse((folder / "p4info.txtpb").read_text(encoding="utf-8"), protocol.P4Info())


def _compile_bmv2(source: Path, folder: Path) -> None:
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        raise ProgramError(
            "p4c-bm2-ss is not on PATH: install p4c (scripts/install-bmv2 where packages exist), "
            "or use --target embedded"
        )
    command = [compiler, "--std", "p4-16", "--p4runtime-files", str(folder / "p4info.txtpb")]
    command += ["-o", str(folder / CONFIG_NAME["bmv2"]), str(source)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ProgramError(f"p4c-bm2-ss refused {source.name}:\n{process.stderr.strip()}")
