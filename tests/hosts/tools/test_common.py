"""Common parts of the tools: options, help and errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.tools import common, ping, stat, write_bw, write_lat
from mrc_testbed.ipc import rundir
from tests.refusals import may_raise

TOOLS = {"mrc-write-bw": write_bw, "mrc-write-lat": write_lat, "mrc-ping": ping, "mrc-stat": stat}


@pytest.mark.parametrize(("text", "size"), [("2", 2), ("64K", 65536), ("8m", 8 << 20), ("1G", 1 << 30)])
def test_size__with_units(text, size):
    assert common.size_type(text) == size


@pytest.mark.parametrize("text", ["", "K", "0", "-1", "1.5M", "x", "64KB", "٣", "9999999G", "9" * 5000])
def test_size__anything_else_says_what_would_do(text):
    with pytest.raises(typer.BadParameter, match="give bytes, such as 2, 4096, 64K or 1M"):
        common.size_type(text)


@given(st.text(max_size=8))
def test_options__no_text_gives_a_traceback(text):
    for kind in (common.size_type, common.count_type, common.seconds_type):
        with may_raise(typer.BadParameter) as errors:
            assert kind(text) > 0
        assert all("give " in str(error) for error in errors)


def test_all_sizes__large_ones_are_written_fewer_times():
    options = common.TestOptions("h2", 65536, True, None, None, 8, None, "mrc")
    fields = options.fields()
    assert fields["sizes"][0] == 2 and fields["sizes"][-1] == 8 << 20
    assert fields["iterations"][0] == 1000 and fields["iterations"][-1] == 8
    assert replace(options, iterations=7).fields()["iterations"] == [7] * len(fields["sizes"])
    assert "iterations" not in replace(options, duration_s=2.0).fields()


FULL_COMMAND = "--from h0 h2 -s 4K -D 1.5 --warm-up 0 -m 2048 --rocev2 -q 2 -t 9 -b -i 0.5 --json"
FIELDS = {
    "peer": "h2", "sizes": [4096], "warm_up": 0, "transport": "rocev2", "duration_s": 1.5, "pmtu": 2048, "qps": 2,
    "bidirectional": True, "depth": 9, "interval_s": 0.5,
}  # fmt: skip
PLAIN = {"peer": "h2", "sizes": [65536], "warm_up": 8, "transport": "mrc", "iterations": [1000], "qps": 1}


@pytest.mark.parametrize(
    ("argv", "fields"), [(FULL_COMMAND, FIELDS), ("h2 --host h0", {**PLAIN, "bidirectional": False})]
)
def test_options__reach_the_agent(run_dir, monkeypatch, argv, fields):
    requests = []

    def conduct(measuring_host, op, fields, *_):
        requests.append((measuring_host.host.name, op, fields))
        return {"state": "done", "error": None}

    monkeypatch.setattr(common, "conduct", conduct)
    assert write_bw.main(argv.split()) == common.OK
    assert requests == [("h0", "write_bw", fields)]


@pytest.mark.parametrize("argv", [[], ["h2", "h1"], ["h2", "--nonsense"], ["h2", "-n", "0"], ["h2", "-s", "64KB"]])
def test_options__a_wrong_command_line_is_one_line(argv, capsys):
    assert write_lat.main(argv) == common.USAGE_ERROR
    output = capsys.readouterr().err
    assert (
        output.startswith("mrc-write-lat: error: ") and "`mrc-write-lat --help`" in output and output.count("\n") == 1
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_help__has_examples(tool, capsys):
    for option in ("--help", "-h"):
        assert TOOLS[tool].main([option]) == common.OK
        output = capsys.readouterr().out
        assert f"Usage: {tool} [OPTIONS]" in output and f"{tool} " in output.partition("Examples:")[2]


def test_run_dir__is_that_of_the_fabric(monkeypatch):
    monkeypatch.delenv("MRC_RUN_DIR", raising=False)
    assert str(common.run_dir_of(None)) == rundir.DEFAULT_PATH
    monkeypatch.setenv("MRC_RUN_DIR", "/somewhere")
    assert str(common.run_dir_of(None)) == "/somewhere"
    assert str(common.run_dir_of("/else")) == "/else"


@pytest.mark.parametrize("tool", TOOLS)
def test_errors__no_fabric_is_one_line_with_the_cure(tool, tmp_path, capsys):
    peer = [] if tool == "mrc-stat" else ["h2"]
    assert TOOLS[tool].main([*peer, "--run-dir", str(tmp_path)]) == common.USAGE_ERROR
    output = capsys.readouterr().err
    assert output == (
        f"{tool}: error: no fabric is running in {tmp_path} (no plan.json there): start one with `mrc up`, "
        "or name its run folder with MRC_RUN_DIR or --run-dir\n"
    )


@pytest.mark.parametrize(
    ("argv", "host", "message"),
    [
        (["h2"], None, "no host given: inside one it is known"),
        (["h2"], "h9", "no host 'h9' (has: h0, h1, h2, h3)"),
        (["h9"], "h0", "no host 'h9' (has: h0, h1, h2, h3)"),
        (["h0"], "h0", "h0 is this host: give another one as peer (has: h1, h2, h3)"),
        (["h2", "--from", "h2"], "h0", "h2 is this host"),
        (["h2"], "h0", "nobody listens on"),
        (["h2", "-a", "--out_json"], "h0", "-a and --out_json exclude each other: its shape has one size; give -s"),
        (["h2", "-n", "5", "-D", "5"], "h0", "-n and -D exclude each other"),
        (["h2", "-i", "0.001"], "h0", "-i 0.001: at least 0.05 s"),
    ],
)
def test_errors__name_cause_and_cure(run_dir, monkeypatch, capsys, argv, host, message):
    if host is not None:
        monkeypatch.setenv("MRC_HOST", host)
    assert write_bw.main(argv) == common.USAGE_ERROR
    output = capsys.readouterr().err
    assert message in output and output.count("\n") == 1


def test_errors__a_plan_that_is_none(run_dir, capsys):
    (run_dir / "plan.json").write_text("[")
    assert stat.main([]) == common.USAGE_ERROR
    assert "plan.json: " in capsys.readouterr().err
