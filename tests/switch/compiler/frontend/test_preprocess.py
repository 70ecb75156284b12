"""The preprocessor: files that are missing, folders of includes, defines."""

from __future__ import annotations

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
from mrc_testbed.switch.compiler.frontend.preprocess import preprocess
from tests.switch.compiler.test_errors import program


def test_missing_file_and_include(tmp_path):
    with pytest.raises(P4Error, match=r"nope.p4: no such file"):
        compile_program(tmp_path / "nope.p4")
    (tmp_path / "a.p4").write_text('#include "b.p4"\n')
    with pytest.raises(P4Error, match=r"a.p4:1:10: cannot include b.p4: no such file"):
        compile_program(tmp_path / "a.p4")


def test_include_folders_and_defines(tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "k.p4").write_text("const bit<8> K = VALUE;\n")
    (tmp_path / "a.p4").write_text('#include "k.p4"\n' + program(apply="hdr.data.a = K;"))
    compilation = compile_program(tmp_path / "a.p4", include=[tmp_path / "inc"], defines=["VALUE=0x55"])
    assert "= 0x55" in compilation.c_path.read_text() or "= 85" in compilation.c_path.read_text()


def test_preprocessed_text__is_not_preprocessed_again():
    text = '# 1 "x.p4"\nA B\n'
    assert preprocess(text, (), ()) == ("x", text)
