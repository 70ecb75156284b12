"""Program that compiles modules by mypyc, run by build.py in a copy of the tree.

    mypyc_setup.py GROUP TARGET [GCC_FLAG...] FILE...

It prints what it is at in lines that begin with `at: `. The C files are compiled side by side, one gcc for each CPU,
which setuptools does not do for the files of one extension.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mypyc.build import mypycify

CFLAGS = ("-O3", "-g0", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-fno-semantic-interposition", "-w")

DEALLOC = re.compile(r"^\w+_dealloc\(\w+ \*self\)\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
"""A function of the generated C that frees an object of a class."""
TRASHCAN = re.compile(r"^ *CPy_TRASHCAN_(?:BEGIN|END)\(.*\)\n", re.MULTILINE)


def main(group: str, target: str, arguments: list[str]) -> None:
    """Compile files to shared objects under `target`.

    Paths are relative to the current folder; `.c` files are modules written in C.
    """
    flags = [argument for argument in arguments if argument.startswith("-")]
    files = arguments[len(flags) :]
    began = time.monotonic()
    print(f"at: reading {len(files)} files and writing C (1 of 2)", flush=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    options = ["--explicit-package-bases", "--python-version", version, "--config-file", _config(), "--strict"]
    options += ["--allow-untyped-calls", "--no-warn-unused-ignores", "--ignore-missing-imports"]
    python = [file for file in files if not file.endswith(".c")]
    extensions: list[Any] = mypycify([*options, *python], multi_file=True, group_name=group, target_dir="c")
    # Modules in C are part of mypyc's library: they read the attributes of its objects and call its functions.
    library = extensions[0]
    library.sources += [file for file in files if file.endswith(".c")]
    library.extra_compile_args.append(f'-DCOMPILED_HEADER="__native_internal_{group}.h"')
    sources = {source: extension for extension in extensions for source in extension.sources}
    for source in Path("c").glob("*.c"):
        source.write_text(without_trashcan(source.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"at: compiling {len(sources)} C files, {time.monotonic() - began:.0f} s so far (2 of 2)", flush=True)
    compiler = (sysconfig.get_config_var("CC") or "gcc").split()
    longest_first = sorted(sources, key=lambda source: -Path(source).stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made = threads.map(lambda source: _object(compiler, flags, source, sources[source]), longest_first)
        objects = dict(zip(longest_first, made, strict=True))
        list(threads.map(lambda extension: _link([*compiler, *flags], extension, objects, Path(target)), extensions))


def without_trashcan(c_source: str) -> str:
    """Return C code of mypyc in which objects without a garbage collector's header are freed at once.

    mypyc has the dealloc of each class use CPython's trashcan, also where the class is marked `acyclic`. The trashcan
    keeps an object that is freed at a nesting over 50 in a list, and writes the link into the header before its start.
    Objects without that header had other memory overwritten. Who holds a long chain of them empties it by a loop
    before it is dropped (simulator/frames.py: FrameQueue.__del__).

    Raises ValueError when a dealloc is not of the known form: nothing may be built with the fault in it.
    """
    if "CPy_TRASHCAN_BEGIN(" in DEALLOC.sub("", c_source):
        raise ValueError(
            "the C code of mypyc uses the trashcan outside of a dealloc function (native_build/mypyc_setup.py)"
        )
    return DEALLOC.sub(_without_trashcan_unless_collected, c_source)


def _without_trashcan_unless_collected(dealloc: re.Match[str]) -> str:
    return dealloc[0] if "PyObject_GC_UnTrack(self);" in dealloc[0] else TRASHCAN.sub("", dealloc[0])


def _config() -> str:
    """Path of a configuration: scapy, which one NIC uses, is not read; it would take longer than all else."""
    path = Path("mypyc.ini")
    path.write_text("[mypy]\n[mypy-scapy.*]\nfollow_imports = skip\n", encoding="ascii")
    return str(path)


def _object(compiler: list[str], flags: list[str], source: str, extension: Any) -> str:
    """Object file of one C file."""
    object_path = f"{source}.o"
    include = [sysconfig.get_paths()["include"], *extension.include_dirs]
    its_flags = [flag for flag in extension.extra_compile_args if not flag.startswith(("-W", "-O", "-g"))]
    _run(
        [
            *compiler,
            *its_flags,
            *CFLAGS,
            *flags,
            *(f"-I{folder}" for folder in include),
            "-c",
            source,
            "-o",
            object_path,
        ]
    )
    return object_path


def _link(compiler: list[str], extension: Any, objects: dict[str, str], target: Path) -> None:
    """Shared object of one module, where its name says."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    path = target / f"{extension.name.replace('.', '/')}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    _run([*compiler, "-shared", *(objects[source] for source in extension.sources), "-o", str(path)])


def _run(command: list[str]) -> None:
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if process.returncode:
        sys.exit(f"{process.stdout}\n(command: {' '.join(command)})")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
