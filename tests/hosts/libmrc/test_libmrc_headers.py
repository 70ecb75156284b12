"""Headers of libmrc: layouts and numbers of mrc.h and mrc_ctl.h 1.0.1, and of libibverbs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mrc_testbed.hosts.libmrc import INCLUDE, SOURCES

ABI = Path(__file__).with_name("abi.txt")
VERBS_H = Path("/usr/include/infiniband/verbs.h")
OF_OTHERS = re.compile(r"of_\w+|abi_compat")
"""Fields of ibverbs_abi.h that stand for several of libibverbs."""


def compile_c(tmp_path, text, *flags):
    """Compile C, which needs no library, and return gcc's words; the empty text where it has none."""
    source = tmp_path / "check.c"
    source.write_text(text, encoding="utf-8")
    command = ["gcc", "-Wall", *flags, "-c", str(source), "-o", str(tmp_path / "check.o")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def layout_checks():
    """Return an assertion for each line of abi.txt."""
    lines, subject = [], ""
    for line in ABI.read_text(encoding="utf-8").splitlines():
        words = line.split()
        match words:
            case ["#", *_]:
                continue
            case [("struct" | "enum") as kind, name, size]:
                subject = f"{kind} {name}"
                lines.append(f'_Static_assert(sizeof({subject}) == {size}, "size of {name}");')
            case [field, offset, size]:
                lines.append(f'_Static_assert(offsetof({subject}, {field}) == {offset}, "offset of {field}");')
                lines.append(f'_Static_assert(sizeof((({subject} *)0)->{field}) == {size}, "size of {field}");')
            case [constant, value]:
                lines.append(f'_Static_assert((int){constant} == (int){value}, "value of {constant}");')
    return lines


def test_mrc_headers__have_the_layouts_and_numbers_of_version_1_0_1(tmp_path):
    checks = layout_checks()
    assert len(checks) > 350
    text = "#include <stddef.h>\n#include <mrc.h>\n#include <mrc_ctl.h>\n" + "\n".join(checks)
    assert compile_c(tmp_path, text, "-DLIBMRC_BUILD", f"-I{INCLUDE}", f"-I{SOURCES}") == ""


@pytest.mark.skipif(not VERBS_H.exists(), reason="libibverbs-dev is not installed")
def test_mrc_headers__compile_in_c_and_cpp_against_libibverbs(tmp_path):
    text = "#include <mrc_ctl.h>\nint main(void) { return sizeof(struct mrc_ctl_ev) != 33; }\n"
    assert compile_c(tmp_path, text, f"-I{INCLUDE}") == ""
    assert compile_c(tmp_path, text, f"-I{INCLUDE}", "-x", "c++", "-std=gnu++17") == ""


def structures_of_ours():
    """Return the fields of each structure of ibverbs_abi.h, functions and unions by their first word."""
    text = re.sub(r"/\*.*?\*/", "", (INCLUDE / "ibverbs_abi.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    for name, body in re.findall(r"^struct (ibv_\w+) \{\n(.*?)^\};", text, re.DOTALL | re.MULTILINE):
        if "union" in body:
            body = re.sub(r"\tunion \{.*\n\t\} (\w+);", r"\tunion \1;", body, flags=re.DOTALL)
        names = re.findall(r"\(\*(\w+)\)\(|\b(\w+)(?:\[\d+\])?;", body)
        yield name, [of_function or of_field for of_function, of_field in names]


@pytest.mark.skipif(not VERBS_H.exists(), reason="libibverbs-dev is not installed")
def test_ibverbs_abi__is_that_of_debians_libibverbs(tmp_path):
    """Compare what both headers say of sizes and offsets, in a program each."""
    structures = list(structures_of_ours())
    assert len(structures) > 20
    fields = [
        (name, field)
        for name, names in structures
        for field in names
        if not OF_OTHERS.fullmatch(field) and (name, field) not in ONLY_OURS
    ]
    text = (INCLUDE / "ibverbs_abi.h").read_text(encoding="utf-8")
    constants = re.findall(r"\b(IBV_[A-Z0-9_]+)\b(?= =|,| \})", text)
    # Each value is printed by a program of one header, then of the other.
    values = [f"offsetof(struct {name}, {field})" for name, field in fields]
    values += [f"sizeof(((struct {name} *)0)->{field})" for name, field in fields]
    values += [f"sizeof(struct {name})" for name, _ in structures if name not in ONLY_BEGUN]
    values += constants
    outputs = {}
    for header in ("ibverbs_abi.h", "infiniband/verbs.h"):
        source, program = tmp_path / "print.c", tmp_path / "print"
        prints = "\n".join(f'printf("%s %lld\\n", "{value}", (long long)({value}));' for value in values)
        source.write_text(
            f"#include <stdio.h>\n#include <stddef.h>\n#include <{header}>\n"
            f"int main(void) {{\n{prints}\nreturn 0;\n}}\n",
            encoding="utf-8",
        )
        subprocess.run(["gcc", f"-I{INCLUDE}", source, "-o", program], check=True)
        outputs[header] = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    lines, debian_lines = outputs.values()
    assert [pair for pair in zip(lines, debian_lines, strict=True) if pair[0] != pair[1]] == []


ONLY_BEGUN = {"ibv_device", "ibv_context", "ibv_port_attr", "ibv_async_event", "ibv_gid_entry"}
"""Structures of which ours has a part, or which are larger in the header than what programs pass."""
ONLY_OURS = {("ibv_send_wr", "remote_srqn"), ("ibv_context_ops", "create_cq")}
"""Fields with another name in the header, or none."""
