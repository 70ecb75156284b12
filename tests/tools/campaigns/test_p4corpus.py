"""The campaign on public programs.

Which files it takes, how it judges, and that it goes on where it stopped.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.campaigns import p4corpus
from tools.campaigns.bmv2 import error_lines
from tools.campaigns.p4corpus import (
    CompilerOptions,
    CompilerResult,
    CorpusProgram,
    CorpusRecord,
    CorpusReport,
    compile_ours,
    corpus_programs,
    include_folders,
    main,
    message_kind,
    plain_folder,
    verdict,
)

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; }
struct headers_t { h_t h; }
struct metadata_t { }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { b.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    table t { key = { h.h.a : exact; } actions = { NoAction; } size = 8; }
    apply { t.apply(); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


@pytest.fixture
def corpus(tmp_path):
    """Two repositories: a right program and its copy, a wrong one, and files that are no programs of ours."""
    first, second = tmp_path / "a+first@1", tmp_path / "b+second@2"
    for folder in (first / "x_outputs", second):
        folder.mkdir(parents=True)
    (first / "right.p4").write_text(PROGRAM)
    (first / "x_outputs" / "printed.p4").write_text(PROGRAM + "\n")
    (first / "headers.p4").write_text("header x_t { bit<8> a; } // V1Switch( in a comment")
    (second / "copy.p4").write_text(PROGRAM)
    (second / "wrong.p4").write_text(PROGRAM.replace("size = 8;", "size = SIZE;"))
    return first, second


def corpus_program(name: str = "x") -> CorpusProgram:
    return CorpusProgram(Path("row"), Path(name), name)


def test_programs__those_that_make_a_switch_each_text_once(corpus):
    rows = [(program.row, program.path.name) for program in corpus_programs(corpus)]
    assert rows == [("a+first@1", "right.p4"), ("b+second@2", "wrong.p4")]
    assert len(list(corpus_programs(corpus, outputs=True))) == 3


def test_programs__that_include_their_own_files_count_in_each_folder(corpus):
    for folder in corpus:
        (folder / "main.p4").write_text('#include "headers.p4"\nV1Switch<h, m>(P()) main;')
    assert [program.path.name for program in corpus_programs(corpus)].count("main.p4") == 2


def test_programs__whose_switch_is_made_by_a_file_that_they_include(corpus):
    (corpus[0] / "skeleton.p4").write_text("V1Switch(P()) main;")
    (corpus[0] / "user.p4").write_text('#include "skeleton.p4"\n')
    assert "user.p4" in [program.path.name for program in corpus_programs(corpus)]


def test_p4c__gets_paths_that_a_shell_takes_as_they_are(tmp_path):
    folder = tmp_path / "a (b) 数"
    folder.mkdir()
    assert plain_folder(tmp_path, tmp_path / "link") == tmp_path
    assert plain_folder(folder, tmp_path / "link").resolve() == folder.resolve()


def test_p4c__every_error_line_and_no_warning():
    text = "x.p4(3): [--Wwarn=unused] warning: errors is unused\n    error my_error;\nx.p4(4): [--Werror=a] error: b\n"
    text += "error: c\nerror: 2 errors encountered, aborting\n"
    assert error_lines(text, 1) == ["x.p4(4): [--Werror=a] error: b", "error: c"]
    assert error_lines("x.p4(9):syntax error, unexpected }", 1) == ["x.p4(9):syntax error, unexpected }"]
    assert error_lines("", 139) == ["exit code 139"]


def test_includes__that_a_makefile_would_name_are_found_in_the_repository(tmp_path):
    for name in ("a/p4/include/x/types.p4", "b/p4/include/x/types.p4", "b/p4/deep/only.p4", "b/main/beside.p4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    main_path = tmp_path / "b/main/main.p4"
    main_path.write_text('#include <core.p4>\n#include "x/types.p4"\n#include "beside.p4"\n// #include "beyond"\n')
    (tmp_path / "b/p4/include/x/types.p4").write_text('#include "only.p4"\n')
    folders = include_folders(CorpusProgram(tmp_path, main_path, ""))
    assert folders == [tmp_path / "b/p4/include", tmp_path / "b/p4/deep"]


@pytest.mark.parametrize(
    ("our_result", "p4c_result", "kind"),
    [
        (CompilerResult("tables { }"), CompilerResult("tables { }"), "same"),
        (CompilerResult("tables { size: 1 }"), CompilerResult("tables { size: 2 }"), "differs"),
        (CompilerResult(refusal="no"), CompilerResult("tables { }"), "ours"),
        (CompilerResult("tables { }"), CompilerResult(refusal="no"), "theirs"),
        (CompilerResult("tables { }"), CompilerResult(refusal="x.p4(1): clone3: unknown extern function"), "wider"),
        (CompilerResult("tables { }"), CompilerResult(refusal="clone3: unknown extern function\nno"), "theirs"),
        (CompilerResult(refusal="no"), CompilerResult(refusal="no"), "both"),
        (CompilerResult(refusal="internal error: x"), CompilerResult(refusal="no"), "ours"),
        (CompilerResult("tables { }"), None, "accepted"),
        (CompilerResult(refusal="no"), None, "refused"),
    ],
)
def test_verdict__of_each_pair_of_results(our_result, p4c_result, kind):
    assert verdict(corpus_program(), our_result, p4c_result).kind == kind


def test_report__groups_messages_by_kind():
    report = CorpusReport()
    for name, words in (("x.p4", "x.p4:3:4: `a` is not declared"), ("y.p4", "y.p4:9:1: `b` is not declared")):
        report.add(verdict(corpus_program(name), CompilerResult(refusal=words), CompilerResult("tables { }")))
    ((message, group),) = report.groups("ours")
    assert message == "X is not declared" and len(group) == 2
    assert not report.passed and "ours, 2 times: X is not declared" in report.text()
    assert message_kind("p4c refuses x.p4: x.p4(3): [--Werror=type-error] error: bit<9>") == (
        "[--Werror=type-error] error: bit<N>"
    )


def test_ours__an_exception_is_a_refusal_that_shows(monkeypatch, tmp_path):
    monkeypatch.setattr(p4corpus, "program_info", lambda *_args, **_options: 1 // 0)
    assert compile_ours(tmp_path / "x.p4", CompilerOptions()).refusal.startswith("internal error: ZeroDivisionError")


def test_record__keeps_what_the_compiler_of_today_said(tmp_path):
    path = tmp_path / "record.jsonl"
    CorpusRecord(path, {"ours": "1"}).add(corpus_program(), "ours", CompilerResult(refusal="no"))
    with path.open("a") as file:
        file.write('{"cut')
    assert CorpusRecord(path, {"ours": "1"}).get(corpus_program(), "ours") == CompilerResult(refusal="no")
    assert CorpusRecord(path, {"ours": "2", "p4c": "1"}).missing_sides(corpus_program()) == ["ours", "p4c"]


def test_campaign__judges_folders_and_goes_on(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(p4corpus, "p4c_version", lambda: "")
    arguments = [*map(str, corpus), "--jobs", "1", "--json", "--record", str(tmp_path / "record.jsonl")]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["folders"] == {"a+first@1": {"accepted": 1}, "b+second@2": {"refused": 1}}
    assert "SIZE is not declared" in report["verdicts"][0]["reason"]
    monkeypatch.setattr(p4corpus, "compile_both", None)  # nothing is left to do
    assert main(arguments) == 0 and json.loads(capsys.readouterr().out) == report


def test_ours__gets_the_macros(corpus):
    path = corpus[1] / "wrong.p4"
    assert "size: 4" in compile_ours(path, CompilerOptions(defines=("SIZE=4",))).p4info


def test_command_line__a_folder_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        main(["/no/such/folder"])
    assert "no such file or folder: /no/such/folder" in capsys.readouterr().err
