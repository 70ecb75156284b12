"""Program that compiles modules by mypyc: mypyc_setup.py GROUP TARGET FILE...; run by build.py in a copy of the tree.

It prints what it is at in lines that begin with `at: `. The C files are compiled side by side, one gcc for each CPU,
which setuptools does not do for the files of one extension.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mypyc.build import mypycify
from setuptools import Extension

CFLAGS = ("-O3", "-g0", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-fno-semantic-interposition", "-w")


def main(group: str, target: str, files: list[str]) -> None:
    """Compile `files` (relative to the current folder; .c: modules written in C) to shared objects under `target`."""
    begun = time.monotonic()
    print(f"at: reading {len(files)} files and writing C (1 of 2)", flush=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    options = ["--explicit-package-bases", "--python-version", version, "--config-file", _config(), "--strict"]
    options += ["--allow-untyped-calls", "--no-warn-unused-ignores", "--ignore-missing-imports"]
    python = [file for file in files if not file.endswith(".c")]
    extensions: list[Any] = mypycify([*options, *python], multi_file=True, group_name=group, target_dir="c")
    extensions += [Extension(file[:-2].replace("/", "."), [file]) for file in files if file.endswith(".c")]
    sources = {source: extension for extension in extensions for source in extension.sources}
    print(f"at: compiling {len(sources)} C files, {time.monotonic() - begun:.0f} s so far (2 of 2)", flush=True)
    compiler = (sysconfig.get_config_var("CC") or "gcc").split()
    longest_first = sorted(sources, key=lambda source: -Path(source).stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made = threads.map(lambda one: _object(compiler, one, sources[one]), longest_first)
        objects = dict(zip(longest_first, made, strict=True))
        list(threads.map(lambda one: _link(compiler, one, objects, Path(target)), extensions))


def _config() -> str:
    """Path of a configuration: scapy, which one NIC uses, is not read; it would take longer than all else."""
    path = Path("mypyc.ini")
    path.write_text("[mypy]\n[mypy-scapy.*]\nfollow_imports = skip\n", encoding="ascii")
    return str(path)


def _object(compiler: list[str], source: str, extension: Any) -> str:
    """Object file of one C file."""
    made = f"{source}.o"
    include = [sysconfig.get_paths()["include"], *extension.include_dirs]
    flags = [flag for flag in extension.extra_compile_args if not flag.startswith(("-W", "-O", "-g"))]
    _run([*compiler, *flags, *CFLAGS, *(f"-I{one}" for one in include), "-c", source, "-o", made])
    return made


def _link(compiler: list[str], extension: Any, objects: dict[str, str], target: Path) -> None:
    """Shared object of one module, where its name says."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    path = target / f"{extension.name.replace('.', '/')}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    _run([*compiler, "-shared", *(objects[source] for source in extension.sources), "-o", str(path)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}\n(command: {' '.join(command)})")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
