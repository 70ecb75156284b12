"""The `mrc` command as a person meets it.

Bad input gives one clear line, exit code not 0, and leaves nothing.
"""

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli import app, options, show
from mrc_testbed.cli import p4runtime_shell as shell
from mrc_testbed.demo.plan import MIN_BYTES, links_to_cut
from mrc_testbed.doctor import doctor
from mrc_testbed.errors import EXIT_CODES, UsageError
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.lab.p4_program import ProgramError, compile_program, programs, source_of
from mrc_testbed.topologies.plan import LinkSpeed, Plan
from tests.repository import ROOT


def run_process(*arguments, **environment):
    """Return `mrc` as a process of its own, which takes most of a second to start.

    Tests of words and options take mrc().
    """
    return subprocess.run(
        [sys.executable, "-m", "mrc_testbed", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def mrc(monkeypatch, capfd, tmp_path):
    """`mrc` in this process, in a run folder of its own.

    From the words of the command line to the exit code.
    """
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "run"))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mrc", *arguments])
        with pytest.raises(SystemExit) as end:
            app.main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code or 0, out, err)

    return run


def test_process__says_one_line_and_exits_with_1(tmp_path):
    result = run_process("demo", "--planes", "17", MRC_RUN_DIR=str(tmp_path / "run"))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("mrc: error: planes = 17: must be 1 to 16") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--planes", "17"], "planes = 17: must be 1 to 16"),
        (["--racks", "0"], "racks = 0: must be 1 to 256"),
        (["--planes", "16", "--racks", "200", "--spines", "200"], "would have 17 characters"),
        (["--racks", "1"], "give --racks 2 or more"),
        (["--planes", "1"], "give --planes 2 or more"),
        (["--file", "/nonexistent"], "cannot read /nonexistent: No such file"),
        (["--file", "/"], "cannot read /: Is a directory"),
        (["--file", "/etc/hostname"], f"needs {MIN_BYTES >> 20} MiB or more"),
        (["--rate", "fast"], "rate 'fast': give bits/s"),
        (["--target", "tofino"], "no target 'tofino' (has: embedded, bmv2)"),
        (["--nic", "mlx5"], "no NIC 'mlx5' (has: fast, scapy)"),
    ],
)
def test_demo__bad_input_is_one_line(arguments, words, mrc, tmp_path):
    result = mrc("demo", *arguments)
    assert result.returncode == 1
    assert words in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "run" / "state.json").exists()


def test_up__a_control_plane_that_is_neither_now_nor_never_nor_seconds(mrc):
    result = mrc("up", "--react-after", "soon")
    assert result.returncode == 1 and "--react-after 'soon': wants `now`, `never` or seconds" in result.stderr


@pytest.mark.parametrize("command", [("up",), ("demo",), ("run", "e7")])
def test_wires__virtual_ones_cannot_join_bmv2_switches(command, mrc, tmp_path):
    if command[0] == "run" and os.geteuid():
        pytest.skip("a live run asks for root first")
    result = mrc(*command, "--target", "bmv2", "--wires", "virtual")
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert "use --wires veth, or --target embedded" in result.stderr
    assert not (tmp_path / "run" / "state.json").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("up", "--wires", "copper"), "no wires 'copper' (has: virtual, veth)"),
        (("up", "--target", "p9"), "no target 'p9' (has: embedded, bmv2)"),
        (("bench", "mrc", "--wires", "copper"), "--wires copper: give virtual, veth or both"),
        (("bench", "provision", "--wires", "copper"), "--wires copper: give virtual, veth or both"),
    ],
)
def test_wires__that_do_not_exist(command, words, mrc):
    result = mrc(*command)
    assert result.returncode == 1 and words in result.stderr


@pytest.mark.parametrize("command", ["demo", "up", "clean", "bench", "doctor", "shell"])
def test_help__every_command_has_it(command, mrc):
    result = mrc(command, "--help")
    assert result.returncode == 0 and "Usage: mrc" in result.stdout


@pytest.mark.parametrize(
    "command",
    [("scenario", "list"), *(("scenario", "show", name) for name in ("e10", "e15", "headline-link", "x-chaos"))],
)
def test_output__to_a_pipe_fits_100_columns(command, mrc, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    result = mrc(*command)
    assert result.returncode == 0 and max(map(len, result.stdout.splitlines())) <= 100 and "…" not in result.stdout
    if command[1] == "show":
        monkeypatch.setenv("COLUMNS", "72")
        assert max(map(len, mrc(*command).stdout.splitlines())) <= 72


def test_require_root__says_sudo(monkeypatch):
    monkeypatch.setattr(app.os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="needs root"):
        options.require_root("demo")


def test_doctor__json_and_exit_code():
    result = run_process("doctor", "--json")
    checks = json.loads(result.stdout)
    assert {"root", "gcc", "AF_PACKET"} <= {check["name"] for check in checks}
    assert (result.returncode == 0) == all(check["ok"] for check in checks if check["needed"])


def test_doctor__lacking_what_is_needed_is_not_healthy():
    fine = doctor.Check("a", True, "")
    assert doctor.healthy([fine, doctor.Check("b", False, "", "cure", needed=False)])
    assert not doctor.healthy([fine, doctor.Check("c", False, "", "cure")])


def test_doctor__names_the_extra_of_a_missing_package(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda module: None)
    cures = {check.name: check.cure for check in doctor._packages()}
    assert "mrc-testbed[live]" in cures["python mininet"] and "pip install mrc-testbed," in cures["python lark"]


def test_doctor__knows_releases_and_machines(tmp_path):
    (release,) = doctor._release()
    assert release.ok == (release.found.split(",")[0] in doctor.RELEASES) and "debian-13" in release.cure
    assert doctor.virtual_machine(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("flags : fpu hypervisor\n")
    assert doctor.virtual_machine(tmp_path) == "unknown hypervisor"
    dmi = tmp_path / "sys" / "class" / "dmi" / "id"
    dmi.mkdir(parents=True)
    (dmi / "sys_vendor").write_text("QEMU\n")
    assert doctor.virtual_machine(tmp_path) == "QEMU"


def test_doctor__lock_holder_is_another_process(tmp_path):
    path = tmp_path / "lock"
    assert doctor.lock_holder(path) is None
    path.touch()
    assert doctor.lock_holder(path) is None
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print('held'); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert doctor.lock_holder(path) == holder.pid
        holder.communicate("\n")


def test_shell__without_a_fabric_says_how_to_start_one(tmp_path):
    with pytest.raises(UsageError, match="no fabric is running"):
        shell.command("p0-t0-0", tmp_path)


def test_shell__names_the_switches(tmp_path):
    (tmp_path / "switches.json").write_text(json.dumps({"p0-t0-0": {"address": "127.0.0.1:9559", "device_id": 1}}))
    with pytest.raises(UsageError, match=r"no switch 'p9' .*has: p0-t0-0"):
        shell.command("p9", tmp_path)


def test_shell__of_a_switch_that_is_off_says_the_cure_at_once(tmp_path, monkeypatch):
    """The shell itself would wait for it for ever."""
    (tmp_path / "switches.json").write_text(json.dumps({"p0-t0-0": {"address": "unix:/no", "device_id": 1}}))

    class Daemon:
        def __init__(self, _path, name):
            assert name == "switchd"

        def request(self, op):
            return {op: [{"name": "p0-t0-0", "on": False}]}

        def close(self):
            pass

    RunFiles(tmp_path).switchd_socket.touch()
    monkeypatch.setattr(shell, "JsonlClient", Daemon)
    with pytest.raises(UsageError, match=r"p0-t0-0 is off and has no tables\. Cure: `power p0-t0-0 on`"):
        shell.command("p0-t0-0", tmp_path)


def test_parse__sizes_and_rates():
    assert options.parse_size("64M") == 64 << 20
    assert options.parse_rate("40M") == 40e6
    assert options.parse_rate(None) is None
    for text in ("", "M", "-1", "0", "nan", "1e99", "12X"):
        with pytest.raises(UsageError):
            options.parse_size(text)


def test_links_to_cut__are_on_the_way_and_in_different_planes():
    for plan in (Plan(), Plan(2, 3, 2, 1), Plan(3, 2, 1, 1)):
        fabric_link, nic_link = links_to_cut(plan, "h0", plan.first_remote_host("h0").name)
        host, remote_host = plan.host("h0"), plan.first_remote_host("h0")
        assert plan.evs_through(host, remote_host, fabric_link) and plan.evs_through(host, remote_host, nic_link)
        assert fabric_link.plane != nic_link.plane


def test_program__names_what_there_is(tmp_path):
    assert programs() == ["spray", "srv6"]
    with pytest.raises(ProgramError, match="has: spray, srv6"):
        source_of("srv7")
    with pytest.raises(ProgramError, match="no target"):
        compile_program(tmp_path, "tofino", "srv6")


def test_program__both_compile_to_what_p4runtime_wants(tmp_path):
    for name in programs():
        compile_program(tmp_path / name, "embedded", name)
        assert "tables {" in (tmp_path / name / "p4info.txtpb").read_text()
        assert (tmp_path / name / "config.p4").stat().st_size > 1000


def test_program__syntax_error_has_a_place(tmp_path):
    source = tmp_path / "broken.p4"
    source.write_text("#include <core.p4>\nheader h_t { bit<8> x }\n")
    with pytest.raises(ProgramError, match=r"broken\.p4:2:\d+"):
        compile_program(tmp_path / "out", "embedded", str(source))


def test_program__bmv2_without_p4c_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramError, match="p4c-bm2-ss is not on PATH"):
        compile_program(tmp_path, "bmv2", "srv6")


def test_links__of_a_bmv2_fabric_from_another_terminal_claim_neither_delay_nor_loss(tmp_path, monkeypatch, capsys):
    plan = Plan(1, 2, 1, 1, fabric_link=LinkSpeed(delay_s=0.01))
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    addresses = {s.name: {"address": "127.0.0.1:1", "device_id": s.device_id, "gnmi": None} for s in plan.switches}
    (tmp_path / "switches.json").write_text(json.dumps(addresses))
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    assert show.run_word("links", [], as_json=True, fabric_name=None) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["delay_s"] == [0, 0] and None in row["loss"]  # hosts send through the kernel: nothing to ask
    assert show.run_word("links", ["p0-t1-0"], as_json=False, fabric_name=None) == 0
    assert "?" in capsys.readouterr().out


def test_p4__takes_a_path_or_the_name_of_a_program_of_ours(mrc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.p4").write_text("control c() { apply { x = 1; } }\n")
    assert mrc("p4", "check", "srv6").returncode == 0
    result = mrc("p4", "check", "mine.p4", "srv7")
    assert result.returncode == 1 and "mine.p4:1:" in result.stdout and "srv7: no such file" in result.stdout


def test_run__refuses_wires_in_virtual_time(mrc):
    result = mrc("run", "e7", "--virtual", "--wires", "veth")
    assert result.returncode != 0 and "--wires is for live runs" in result.stderr


HELP_OF_ALL = """
import sys
import typer
from typer.testing import CliRunner
from mrc_testbed.cli.app import app

print(*{name.removeprefix("mrc_testbed.") for name in sys.modules})

def ask(command, *words):
    if words != ("controller",):  # its own parser's
        done = CliRunner().invoke(app, [*words, "--help"])
        assert done.exit_code == 0 and "Usage: mrc" in done.stdout.replace("Usage: root", "Usage: mrc"), (words, done)
    for name, one in getattr(command, "commands", {}).items():
        ask(one, *words, name)

ask(typer.main.get_command(app))
print(*{name.removeprefix("mrc_testbed.") for name in sys.modules})
"""


@pytest.mark.thorough
def test_help__of_every_command_loads_nothing_that_only_commands_need():
    """Help is asked for often, and has to come at once.

    The fabric's modules alone take as long as all the rest.
    """
    result = subprocess.run([sys.executable, "-c", HELP_OF_ALL], capture_output=True, text=True, check=True)
    before_help, after_help = map(set, map(str.split, result.stdout.splitlines()))
    heavy = {"aiohttp", "controller", "experiments", "finsy", "grpc", "hosts", "matplotlib", "mininet", "numpy"}
    heavy |= {"scapy", "simulator", "switch.compiler", "switch.device", "switch.server", "topologies"}
    assert not heavy & after_help
    assert "pydantic" not in before_help  # typer itself takes it to read options, and nothing before


def test_up__loads_neither_the_pages_server_nor_p4runtimes_client():
    code = """
import sys
import mrc_testbed.cli.prompt.shell, mrc_testbed.controller.reconvergence, mrc_testbed.dash.live_page
print(*sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"aiohttp", "finsy"} | ({"setuptools"} if sys.version_info < (3, 12) else set())
    assert not heavy & set(result.stdout.split())


def test_expected_errors__stand_in_the_modules_that_are_asked_for_them():
    for name, error_name in app.EXPECTED_ERRORS.items():
        error = getattr(import_module(name), error_name)
        assert issubclass(error, Exception) and error.__module__ == name


def test_exit_codes__are_the_same_in_help_and_documents():
    table = (
        (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    )
    assert dict(re.findall(r"^\| (\d+) \| (.+) \|$", table, re.MULTILINE)) == {
        str(code): meaning for code, meaning in EXIT_CODES.items()
    }
    help_text = " ".join(CliRunner().invoke(app.app, ["--help"], env={"COLUMNS": "400", "TERM": "dumb"}).output.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning.replace('`', '')}" in help_text
