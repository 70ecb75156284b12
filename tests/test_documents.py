"""Commands of the documents.

Each is run, here or by a test that is named, or there is a reason why not.

The tutorial's do what its page says, in its order. What takes long runs with MRC_EXAMPLES=all only: about a quarter of
an hour, with root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from typer.main import get_command

from mrc_testbed.cli.app import app
from mrc_testbed.hosts.dissector import tshark
from tests.repository import ROOT

pytestmark = pytest.mark.documents

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "p4src/README.md"]
PAGE = (ROOT / "docs/tutorial.md").read_text()
COMMANDS = re.findall(r"^    \$ (.+)$", PAGE, re.MULTILINE)
WORDS = re.findall(r"^    mininet> (.+)$", PAGE, re.MULTILINE)
SCENARIO = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
MRC = [sys.executable, "-m", "mrc_testbed"]
FABRIC = "/run/mrc-testbed"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets")
only_all = pytest.mark.skipif(os.environ.get("MRC_EXAMPLES") != "all", reason="takes long: MRC_EXAMPLES=all runs it")


# ---- what the pages show ------------------------------------------------------------------------------------

PROGRAMS = "sudo|mrc|mrc-[a-z-]+|make|git|docker|vagrant|curl|prometheus|python|source|tshark|scripts/\\S+|pip|apt-get"
COMMAND_LINE = re.compile(
    rf"^(?:    |\$ )((?:\$ |mininet> |\.venv/bin/|[A-Z_]+=|(?:{PROGRAMS}) ).*|make)$|^\$ (.*)$", re.MULTILINE
)


def commands_of(page: Path) -> list[str]:
    """Return the commands on lines of their own, without prompt, `sudo`, folder and trailing remark."""
    commands = []
    for match in COMMAND_LINE.finditer(re.sub(r"\\\n *", " ", page.read_text())):
        line = re.split(r"\s{3,}(?!-)|\s+# ", (match[1] or match[2]).removeprefix("$ "))[0]
        commands.append(
            " ".join(line.replace(".venv/bin/p", "p").replace(".venv/bin/m", "m").replace("sudo ", "").split())
        )
    return commands


QUICK = (
    "mrc report results",
    "mrc plan --nics 131072 --radix 512 --rate 800G",
    "mrc plan --planes 4 --racks 2 --spines 2 --hosts-per-rack 2 --json",
    "mrc plan --nics 1024 --radix 64 --planes 4 --infragraph fabric.yaml",
    "mrc plan --from fabric.yaml",
    "mrc --version",
    "mrc scenario list",
    "mrc scenario show e10",
    "mrc study loss --estimate",
    "mrc compare results/a results/b",
    "mrc report results/* --summary",
    "mrc simtest --seed 93",
    "mrc run e2 e3 e10 e11 --fluid",
)
"""Run after the tutorial's, in its folder."""
IN_SHELL = (
    'URL=$(python3 -c \'import json; print(json.load(open("/run/mrc-testbed/controller.json"))["url"])\')',
    'curl -s -H "Authorization: Bearer $(cat /run/mrc-testbed/token)" $URL/v1/status',
    "API=/run/mrc-testbed/controller.sock",
    "curl -s --unix-socket $API http://localhost/v1/faults?state=active",
    'curl -s --unix-socket $API "http://localhost/v1/evs?from=h0&to=h2"',
    'curl -s --unix-socket $API "http://localhost/v1/counters?switch=p1-t0-0"',
    'curl -sN --unix-socket $API "http://localhost/v1/events?events=fault,port"',
    "curl -s --unix-socket /run/mrc-testbed/controller.sock http://localhost/metrics | grep mrc_evs",
    "curl -s --unix-socket $API -X POST -H 'Content-Type: application/json' -d '{\"policy\": \"lossy\"}' "
    "http://localhost/v1/denylist",
    "mrc dash",
    "mrc faults --replay /run/mrc-testbed/log/observations.jsonl",
    "mrc pcap p1-t0-0-eth3 --duration 6 --out t0.pcap",
    "mrc pcap h0 --duration 6 --out h0.pcapng",
    "mrc pcap h0 --explain --duration 6 --out told.pcapng",
)
"""Run beside a fabric that is up, in a shell, while a transfer crosses it."""
READ = (
    "tshark -X lua_script:hosts/dissector/mrc.lua -n -r t0.pcap",
    "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y 'mrc.bth.rtx == 1 && mrc.reth' "
    "-T fields -e frame.time_relative -e frame.interface_name -e mrc.psn -e mrc.ev -e usid.path",
    "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y 'mrc.peth || mrc.seth.pr == 1'",
    "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y mrc.reth -T fields -e mrc.ev.plane "
    "| sort | uniq -c",
    "tshark -n -r told.pcapng -T fields -e frame.number -e frame.comment "
    "-Y 'frame.comment contains \"retransmission of frame\"'",
)
"""Read what was captured then."""
LONG_WITHOUT_ROOT = (
    "mrc run e7 --virtual",
    "MRC_COMPILED=0 mrc run e7 --virtual",
    "mrc run headline-link --virtual --out results/link",
    "mrc run headline-link --virtual --seed 1 --out results/link",
    "mrc report results/link",
    "mrc dash results/link",
    "mrc run headline-us --virtual --seed 1 --out results/us-1",
    "mrc study microseconds --out results/us",
    "mrc study loss --out results/loss",
    "mrc study loss --resume results/loss",
    "mrc study failures --out results/failures",
    "mrc run mine.yaml --virtual --seed 7 --repeat 3 --out results/mine",
    "mrc run moe-step --virtual",
    "mrc run x-tenants --virtual",
    "mrc simtest",
    "mrc bench virtual",
    "mrc bench virtual --hosts 8,512 --packets 32768 --profile",
    "mrc run e3 --fluid --scale paper",
    "mrc run x-jobs --fluid --scale paper",
    "mrc bench fluid --seeds 2",
    "mrc bench fluid --detect --figure detect.png",
    "mrc bench fluid --calibrate",
)
"""Commands that run without root, in this order, with the compiled engine where there is one."""
LONG_LIVE = (
    "mrc demo --file model.bin",
    "mrc demo --planes 2 --racks 3 --spines 2 --hosts-per-rack 1",
    "mrc demo --nic scapy --rate 2M",
    "mrc demo --rootless",
    "mrc up --mode ecmp",
    "mrc up --rate 100M --delay 250us",
    "mrc up --fabric-rate 20M --spines 4",
    "mrc up --rate none",
    "mrc up --rootless",
    "mrc up --dash",
    "mrc run e7",
    "mrc run e7 --dash",
    "mrc run e7 --rootless",
    "mrc run e10",
    "mrc bench provision",
    "mrc bench spray",
    "mrc bench exec",
    "mrc bench collectives",
)
"""Commands that run with root.

`mrc up` gets the commands of docs/tools.md, where its links carry them, and an end.
"""
TOOLS = (
    "mrc-write-bw h2",
    "mrc-write-bw h2 -D 10 -i 1",
    "mrc-write-bw h2 -a",
    "mrc-write-bw h2 -q 4 -b -D 5",
    "mrc-write-bw h2 --rocev2",
)
"""Commands that run in h0, at the prompt of the fabric without rates."""
ELSEWHERE = {
    "tests/tools/campaigns/test_p4_fuzz.py": ("mrc fuzz p4 --runs 1000 --duration 3600", "mrc fuzz p4 a.p4 b.p4"),
    "tests/tools/campaigns/test_p4corpus.py": ("python -m tools.campaigns.p4corpus corpus/* --record corpus.jsonl",),
    "tests/tools/campaigns/test_torch_suite.py": ("python -m tools.campaigns.torch_suite --ranks 2,8",),
    "tests/tools/bench/test_peers.py": ("mrc bench peers --htsim ~/uet-htsim/build/datacenter/htsim_uec",),
    "tests/tools/bench/test_traces.py": (
        "mrc bench traces --astra-sim Congestion_Unaware --astra-sim Congestion_Aware --loggopsim LogGOPSim",
        "mrc bench traces --loggopsim LogGOPSim --trace recdoub16.goal --trace a2a16.goal --trace binary_tree_32.goal",
    ),
    "tests/tools/campaigns/test_virtual_faults.py": ("mrc bench faults --virtual --sets 10000 --out DIR",),
    "tests/native_build/test_modules_both_forms.py": ("mrc compile",),
    "tests/controller/faults/test_observations.py": (
        "mrc faults --replay RESULTS/runs/without.observations.jsonl --json",
    ),
    "tests/experiments/backend/test_outcome_dead_ranks.py": ("python -m tests.experiments.dead_ranks 1000",),
    "tests/experiments/test_results.py": ("mrc run scenarios/*.yaml --virtual --resume results/all",),
    "tests/experiments/live/test_live_programs_live.py": (
        "mrc run write.yaml --out results/write",
        'grep "65536 " results/write/runs/run.output.txt',
    ),
    "tests/resilience/test_scenarios.py": (
        "mrc run x-training --out results/training",
        "mrc run x-training-faults",
        "tail -3 results/training/runs/run.output.txt",
    ),
    "tests/experiments/test_merge.py": ("mrc merge node1/e15 node2/e15 --out results/e15",),
    "tests/experiments/executors/test_ray_crew.py": ("mrc study loss --executor ray --out results/loss",),
    "tests/experiments/executors/test_submitit_crew.py": (
        "mrc study loss --executor slurm --slurm partition=short --out results/loss",
        "mrc run scenarios/*.yaml --virtual --executor slurm --out results/all",
    ),
    "tests/experiments/test_runner_training.py": (
        "mrc run --trace examples/traces/ring-step.goal --virtual --iterations 10",
        "mrc scenario trace examples/traces/ring-step.goal",
        "mrc run --trace examples/traces/ring-step.goal --iterations 5",
    ),
    "tests/experiments/traces/test_command.py": (
        'mrc run --trace examples/traces/ring-step.goal --fault "cut p1-t0-0 p1-t1-1 at 1 s" '
        "--against rocev2,flow-ecmp",
        "mrc run --trace examples/traces/simai.txt --virtual --against rocev2,flow-ecmp,switch-spray",
        "mrc run --trace examples/traces/simai.txt --virtual --fabric planes=8,rate=100G,rtt=10us --against rocev2",
    ),
    "tests/experiments/traces/test_read.py": (
        "mrc scenario convert examples/traces/simai.txt simai.goal",
        "mrc scenario trace examples/traces/permutation.cm",
        "mrc scenario trace examples/traces/nccl.log",
        "mrc scenario trace examples/traces/all_reduce_perf.txt",
    ),
    "tests/experiments/traces/test_kineto.py": ("mrc run --trace examples/traces/kineto --virtual",),
    "tests/simulator/simtest/test_fuzz.py": (
        "mrc fuzz wire --runs 2000000 --duration 600",
        "python tests/fuzz/harness.py endpoints -atheris_runs=100000",
    ),
    "tests/hosts/dissector/test_install.py": ("mrc pcap --install-dissector",),
    "tests/hosts/tools/test_tools_network.py": ("mrc-write-bw h2 -s 1M -n 100 --out_json",),
    "tests/api/test_result_set.py": (
        "mrc report results --parquet results.parquet",
        "mrc report results/e15 --nccl-tests nccl",
    ),
    "tests/cli/test_completion.py": (
        "source .venv/bin/activate",
        "mrc --install-completion",
        "mrc run head<Tab>",
        "mrc links p7-t1<Tab>",
    ),
    "tests/cli/test_fabrics_live.py": (
        "mrc up -d --name b",
        "mrc ls",
        "mrc attach b",
        "mrc exec h0 --fabric b",
        "mrc ssh h0 uname -a",
        "mrc down b",
    ),
    "tests/cli/test_topology.py": (
        "mrc topology show examples/topologies/uneven-planes.yaml",
        "mrc topology import examples/topologies/clos.clab.yml",
    ),
    "tests/cli/test_topology_live.py": ("mrc up examples/topologies/own-names.yaml",),
    "tests/experiments/language/test_new_scenario.py": ("mrc scenario new mine.yaml",),
    "tests/topologies/p4lab/test_lab.py": (
        "mrc p4 run my.p4 --entries s1-runtime.json",
        "mrc p4 run solution/basic.p4 --topology pod-topo/topology.json",
    ),
    "tests/test_p4_exercises.py": ("mrc p4 run sprayer.p4 --topology leaf-spine.json",),
    "tests/capture/explain/test_explained_file.py": ("mrc pcap h0.pcapng --explain",),
    "tests/topologies/lab/cluster/test_cluster_live.py": (
        "mrc doctor --servers servers.yaml",
        "mrc demo --servers servers.yaml",
        "mrc up --servers servers.yaml",
        "mrc run e7 --servers servers.yaml",
        "mrc clean --servers servers.yaml",
        "python -m tests.cluster_rig 3",
    ),
    "tests/test_matrix.py": (
        "make matrix",
        "make matrix PYTHONS=lowest",
        'make matrix PYTHONS="3.10 3.14" ARGS="tests/hosts"',
    ),
    "tests/hosts/nicd/test_daemon_live.py": (
        "mrc up -d --rate none",
        "mrc link p0-t0-0 p0-t1-0 down",
        "mrc exec h0 -- ibv_devices",
        "mrc exec h2 -- ib_write_bw -d mrc0 -s 65536 -D 10",
        "mrc exec h0 -- ib_write_bw -d mrc0 -s 65536 -D 10 h2",
        "mrc devices",
        "mrc exec h2 -- ./write",
        "mrc exec h0 -- ./write 10.64.0.3 6",
        "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y 'mrc.bth.dest_qp == 0x1627d'",
        "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y 'mrc.bth.dest_qp == 0x14197'",
        "tshark -X lua_script:hosts/dissector/mrc.lua -n -r h0.pcapng -Y 'mrc.bth.dest_qp == 0x1627d' "
        "-T fields -e frame.interface_name -e mrc.ev | sort | uniq -c",
    ),
    "tests/cli/test_training_live.py": (
        "mrc train examples/ddp.py",
        "mrc train --backend loopback examples/ddp.py",
        'mrc exec h0 -- mpirun --allow-run-as-root --mca plm_rsh_agent "mrc ssh" --mca btl tcp,self '
        "--mca btl_tcp_if_include fabric0 --mca oob_tcp_if_include fabric0 -H h0,h2 ./all_reduce",
    ),
    "tests/hosts/nicd/test_door_live.py": (
        "mrc up -d --rate none --allow alice",
        "mrc exec h2 --here -- ./write",
        "mrc exec h0 --here -- ./write 127.0.0.1 6",
    ),
    "tests/test_releases.py": ("MRC_RELEASES=debian-13 python -m pytest tests/test_releases.py",),
}
"""Commands by the test that does the same, smaller."""
NOT_RUN = {
    "begins with the clone that this is": ("git clone <this repository> && cd mrc-testbed",),
    "sets up and runs this very suite, or a part of it": (
        "make demo",
        "make test",
        'make unit ARGS="-k nscc"',
        'make resilience ARGS="-k t1"',
        "python -m pytest -q tests/hosts/engine/paths/test_ev.py",
        'python -m pytest -q tests/hosts -k "skip and not probe"',
        "python -m pytest -q tests/cli/prompt/test_shell_live.py",
        "python -m pytest -q tests/hosts/libmrc/test_libmrc_sanitized.py -k sanitizers",
        "python -m pytest -q tests/hosts/libmrc/test_libmrc_sanitized.py -k valgrind",
        "pip install -e '.[data]'",
        "pip install -e '.[torch]'",
    ),
    "needs several machines for a minute; docs/cluster.md has what it gave": (
        "mrc bench cluster --servers servers.yaml --size 64M --rounds 5",
    ),
    "a drawing": ("mrc demo / mrc up",),
    "needs a hypervisor or a container engine": (
        "vagrant up && vagrant ssh -c 'mrc demo'",
        "docker build -t mrc-testbed .",
        "docker run --rm -it --cap-add NET_ADMIN --cap-add NET_RAW --cap-add SYS_ADMIN --cap-add SYS_NICE "
        "--security-opt apparmor=unconfined mrc-testbed",
    ),
    "needs a Prometheus": ("prometheus --config.file=examples/monitoring/prometheus.yml",),
    "half an hour and more; docs/results.md is made of it": (
        "mrc run scenarios/*.yaml --virtual --out results/all && mrc report results/all",
        "mrc run scenarios/*.yaml --virtual",
        "mrc report results/virtual-* results/live-1 --summary",
        "mrc run scenarios/*.yaml --seed 1 --out results/live-1",
        "mrc run e15 --virtual --scale paper --out results/paper",
        "mrc run e15 --virtual --scale paper --resume results/paper",
        "mrc bench faults --singles 100",
        "mrc bench faults --virtual --sets 10000 --seed 100",
        "mrc bench faults --virtual --sets 3000 --seed 300",
    ),
    "the record of a campaign at an older commit, or one of hours": (
        "mrc simtest --seeds 200000 --first-seed 1000000 --keep-going --json > report.json",
        "mrc simtest --seeds 200000 --first-seed 80000000 --jobs 1 --keep-going --json",
        "mrc simtest --seeds 200000 --first-seed 1000000 --jobs 2 --keep-going --json",
        "mrc fuzz ...",
        "git grep -c '' REVISION -- '*.py' '*.c' '*.h' '*.p4' '*.lark' '*.lua' ':!tests' |",
    ),
    "replays a file that only a failure writes": ("mrc simtest --replay simtest-93.json",),
}
"""Commands that are not run, by the reason."""


def test_commands__are_all_run_or_there_is_a_reason():
    groups = [QUICK, IN_SHELL, READ, LONG_WITHOUT_ROOT, LONG_LIVE, TOOLS, *ELSEWHERE.values(), *NOT_RUN.values()]
    listed_commands = [command for group in groups for command in group]
    assert sorted(listed_commands) == sorted(set(listed_commands))
    page_commands = {command for page in PAGES for command in commands_of(page)}
    of_tutorial = {command.removeprefix("sudo ").replace(".venv/bin/", "") for command in COMMANDS}
    at_prompt = {command for command in page_commands if command.startswith("mininet> ")}
    assert page_commands - at_prompt - of_tutorial - set(listed_commands) == set(), "run them, or say why not"
    assert set(listed_commands) - page_commands == set(), "no page has them any more"
    assert [name for name in ELSEWHERE if not (ROOT / name).is_file()] == []


def test_page__has_both_kinds_of_commands():
    assert len(COMMANDS) >= 4 and COMMANDS[0].startswith("sudo ") and len(WORDS) >= 8
    assert 10 <= len(SCENARIO.splitlines()) <= 14


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_commands__of_every_page_exist_with_their_options(page):
    """`mrc WORD --option` as README and its pages give them: the word is there, and so is each option."""
    commands = get_command(app).commands
    lines = re.findall(r"^    .*?\bmrc (\w.*)$|`mrc (\w[^`]*)`", (ROOT / page).read_text(), re.MULTILINE)
    for line in (block_line or span for block_line, span in lines):
        words = line.split("   ")[0].split(" && ")[0].split()
        name = re.sub(r"[^\w-].*", "", words[0])
        assert name in commands, line
        command = commands[name]
        words = words[: words.index("--")] if "--" in words else words  # what follows is another program's
        for word in words[1:]:
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
        options = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word.rstrip(")") for word in words if word.startswith("--")} <= options, line


# ---- running them -------------------------------------------------------------------------------------------


def bash(command: str, folder: Path, seconds: float = 120, **options) -> subprocess.CompletedProcess[str]:
    """Return a command of a page for this checkout's interpreter, whatever environment it lives in.

    It must succeed.
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    env = {name: value for name, value in env.items() if name != "MRC_COMPILED" or seconds <= 120}
    bin_dir = Path(sys.executable).parent
    env["PATH"] = f"{bin_dir}:{env['PATH']}"
    command = re.sub(r"(^|= ?\d* |&& )mrc ", rf"\1{shlex.join(MRC)} ", command.replace(".venv/bin/", ""))
    process = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds,
        **options,
    )
    assert process.returncode == 0, (command, process.stdout[-3000:], process.stderr[-3000:])
    assert "Traceback" not in process.stdout + process.stderr, (command, process.stdout, process.stderr)
    return process


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """(folder in which the tutorial's commands without root ran, what they said)."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "mine.yaml").write_text(SCENARIO)
    return folder, "".join(bash(command, folder).stdout for command in COMMANDS if not command.startswith("sudo "))


def test_tutorial__without_root(tutorial):
    folder, output = tutorial
    assert (folder / "results/mine/report.html").stat().st_size > 10_000
    passed_line = re.search(r"^    passed  mine.*\n.*$", PAGE, re.MULTILINE)[0]
    assert " ".join(passed_line.split()) in " ".join(output.split())


def test_quick_ones__after_the_tutorial(tutorial):
    folder, _ = tutorial
    outputs = {}
    for command in QUICK:
        if command.startswith("mrc compare"):
            for name in "ab":
                shutil.copytree(folder / "results/mine", folder / "results" / name)
        outputs[command] = bash(command, folder).stdout
    assert all(outputs[command] for command in QUICK)
    assert "e10" in outputs["mrc scenario list"] and "no invariant was violated" in outputs["mrc simtest --seed 93"]


OTHER_FABRIC = ("link red-leaf1 red-spine2 down", "send gpu-a gpu-c 4M")
"""Words for the fabric of a topology file: tests/cli/test_topology_live.py."""
OWN_PACE = ("wait", "heal", "exit", "iperf", "pingpairfull", "send h0 h2 64M", "links p1-t1")
"""Words that make later commands wait, and a line that is half typed.

`pingall` and tests/cli/prompt/test_shell_live.py do what Mininet's words do.
"""
FINDING = re.compile(r"\*\*\* (Ping:|Results:|\d+ (down|lossy)|\S+ is off\.)")
"""Words that find what is broken say so with stars."""


def captures_begun(folder: Path) -> str:
    """Return a shell command that waits until every capture of IN_SHELL holds packets, for at most 30 s."""
    files = [folder / command.rpartition("--out ")[2] for command in IN_SHELL if command.startswith("mrc pcap")]
    condition = " && ".join(f"[ -s {file} ]" for file in files)
    return f"for i in $(seq 300); do {{ {condition}; }} && break; sleep 0.1; done"


def read_capture(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of READ, without its pipe, on the first packets: all would take minutes."""
    _, _, arguments = command.partition(" -r ")
    file, *options = shlex.split(arguments.partition(" | ")[0])
    return tshark(folder / file, *options, "-c", "8000")


def wait_for_packets(folder: Path) -> None:
    """Wait until each of READ shows packets, two minutes at most; what is not there then, the test tells.

    Copies are read: tshark would follow a capture that grows as fast as it reads.
    """
    copies = folder / "so_far"
    copies.mkdir()
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        for capture in folder.glob("*.pcap*"):
            shutil.copy(capture, copies)
        if all(read_capture(copies, command).stdout for command in READ):
            return


def script_beside(run_dir: Path) -> str:
    """Return IN_SHELL as a shell script, which prints FAILED for a command that fails.

    Captures begin first, and go on until somebody ends the processes in `captures`. All else waits for a file
    `sending`.
    """
    lines = ["set -o pipefail", f"cd {run_dir.parent}", f'mrc() {{ {shlex.join(MRC)} "$@"; }}']
    later_lines = []
    for number, command in sorted(
        enumerate(IN_SHELL), key=lambda numbered_command: not numbered_command[1].startswith("mrc pcap")
    ):
        line = command.replace(FABRIC, str(run_dir))
        if line.startswith("curl -sN"):  # a stream of events: it ends when we do
            later_lines.append(f"timeout 1 {line}; [ $? = 124 ] || echo FAILED {number}")
        elif line.startswith("mrc pcap"):
            capture = line.replace("mrc", shlex.join(MRC), 1).replace("--duration 6", "--duration 60")
            lines.append(f"{{ (echo $BASHPID >> captures; exec {capture}) || echo FAILED {number}; }} &")
        else:
            later_lines.append(f"{line} || echo FAILED {number}")
    return "\n".join([*lines, "until [ -e sending ]; do sleep 0.1; done", *later_lines, "wait", "echo END"])


@pytest.mark.thorough
@needs_root
@pytest.mark.root
def test_tutorial__then_all_words_and_what_is_asked_from_beside(tmp_path):
    """All words in one go through a pipe, with pauses where a reader would read; one fabric for all pages."""
    run_dir, log = tmp_path / "run", tmp_path / "beside.log"
    (tmp_path / "beside.sh").write_text(script_beside(run_dir))
    words = [
        prompt_line.removeprefix("mininet> ")
        for page in PAGES
        for prompt_line in commands_of(page)
        if prompt_line.startswith("mininet> ")
    ]
    words = [
        prompt_line for prompt_line in dict.fromkeys(words) if prompt_line not in (*WORDS, *OWN_PACE, *OTHER_FABRIC)
    ]
    script = []
    for word in WORDS[: WORDS.index("exit")]:
        script += [word, "sh sleep 2"] if word.startswith(("send ", "link ", "heal")) else [word]
    script += [
        "dash",
        f"sh bash {tmp_path}/beside.sh > {log} 2>&1 &",
        f"sh {captures_begun(tmp_path)}",
        "loss p1-t0-0 p1-t1-1 50%",  # lasts, where a cut may fall beside the transfer or lose no packet of it
        "send h0 h2 32M 8M",  # half a minute, and no capture too fast for its reader
        f"sh touch {tmp_path}/sending",
    ]
    wait = f"from tests.test_documents import *; wait_for_packets(Path({str(tmp_path)!r}))"
    script += [f"sh {shlex.join([sys.executable, '-c', wait])}", "link p1-t0-0 p1-t1-1 down"]
    script += [f"sh kill $(cat {tmp_path}/captures)", f"sh until grep -q END {log}; do sleep 0.1; done"]
    script += ["sh echo THE OTHERS", *words, "heal", "exit"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MRC_RUN_DIR": str(run_dir), "NO_COLOR": "1"}
    process = subprocess.run(
        [*MRC, *shlex.split(COMMANDS[0])[2:]],
        cwd=tmp_path,
        env=env,
        input="\n".join(script) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    out = process.stdout + process.stderr
    tutorials, _, other_output = process.stdout.partition("THE OTHERS")
    assert "0x0101" in tutorials and "assumed_bad" in tutorials, out
    assert re.search(r"active .*T0-T1 link p1-t0-0 p1-t1-1 down", tutorials), out
    assert "arrived bit for bit" in tutorials and "1 undone" in tutorials, out
    assert "no command or node" not in out and "Traceback" not in out, out
    mistakes = [line for line in other_output.splitlines() if line.startswith("*** ") and "exit code 1" not in line]
    assert [line for line in mistakes if not FINDING.match(line)] == [], out
    assert (
        "DEAD_NEXT_HOP" in other_output and "blackhole on p2-t1-0" in other_output and "spine.pcap" in other_output
    ), out
    log_text = log.read_text()
    assert "FAILED" not in log_text and log_text.endswith("END\n") and 'mrc_evs{plane="' in log_text, log_text

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for command, process in zip(READ, pool.map(partial(read_capture, tmp_path), READ), strict=True):
            assert process.returncode == 0 and process.stdout, (command, process.stderr)


@only_all
def test_long_ones(tmp_path):
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    for command in LONG_WITHOUT_ROOT:
        if "--out " in command:
            shutil.rmtree(tmp_path / command.rpartition("--out ")[2], ignore_errors=True)
        bash(command, tmp_path, seconds=1200)


@only_all
@needs_root
@pytest.mark.root
@pytest.mark.parametrize("command", LONG_LIVE)
def test_long_ones__live(command, tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "model.bin").write_bytes(os.urandom(8 << 20))
    tools = [f"h0 {tool}" for tool in TOOLS] if command.endswith("--rate none") else ["send h0 h2 1M", "wait"]
    output = bash(command, tmp_path, seconds=1200, input="\n".join([*tools, "exit"]) + "\n").stdout
    if command.startswith("mrc up"):
        assert "*** " not in output and ("arrived bit for bit" in output or output.count("BW average") == len(TOOLS)), (
            output
        )
