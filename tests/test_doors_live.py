"""Every door of a fabric that is up.

Each is tried by its owner and by another user of the machine (docs/security.md).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.repository import ROOT
from tests.unprivileged import as_nobody

pytestmark = pytest.mark.root
MRC = (sys.executable, "-m", "mrc_testbed")
CLIENTS = str(ROOT / "tests/door_clients.py")
REFUSALS = (
    "UNAUTHENTICATED",
    "401",
    "Permission denied",
    "PermissionError",
    "UNAVAILABLE",
    "CERTIFICATE",
    "Timeout",
    "No such file",
    "cannot be opened",
    "closed connection without response",
    "Connection reset",
)
WITH_TOKEN_BY_TLS = {"P4Runtime by TLS with token", "pygnmi by TLS with token", "API by TLS with token"}
OF_OWNER = {"P4Runtime by its socket", "gNMI by its socket", "pygnmi by its socket", "API by its socket", "run folder"}
BY_ANYBODY = {"P4Runtime by TCP", "gNMI by TCP", "API by TCP", "metrics"}


class RunningFabric:
    """`mrc up` at a prompt that the test types at."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*MRC, "up", "--planes", "1", "--spines", "1", "--hosts-per-rack", "1", *options],
            cwd=ROOT,
            env={**os.environ, "MRC_RUN_DIR": str(folder)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = ""

    def __enter__(self) -> RunningFabric:
        self.type_line("sh echo begun", "begun\n")
        return self

    def type_line(self, line: str, ending: str) -> str:
        """Type a line; what the prompt says until `ending` is in it."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = ""
        for output_line in self.process.stdout:
            answer += output_line
            if ending in output_line:
                self.output += answer
                return answer
        raise AssertionError(answer)

    def __exit__(self, *exc: object) -> None:
        self.output += self.process.communicate("exit\n", timeout=90)[0]


ALL_DOORS = (
    *OF_OWNER,
    *WITH_TOKEN_BY_TLS,
    *BY_ANYBODY,
    "P4Runtime primary by TCP",
    "P4Runtime by TLS",
    "gNMI Set by TCP",
    "API by TCP with token",
    "API by TLS",
    "API shutdown",
)


def calls(names: Iterable[str]) -> list[list[str]]:
    """Return the names of clients, those that fit in one process together."""
    names = list(names)
    groups = [[name for name in names if ("pygnmi" in name) is foreign] for foreign in (False, True)]
    return [group for group in groups if group]


def tried_by_owner(folder: Path) -> dict[str, str]:
    answers: dict[str, str] = {}
    for names in calls(name for name in ALL_DOORS if name != "API shutdown"):
        command = [sys.executable, CLIENTS, str(folder), *names]
        process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        answers |= json.loads(process.stdout.splitlines()[-1])
    return answers


def tried_by_nobody(home: Path, folder: Path, names: Iterable[str] = ALL_DOORS) -> dict[str, str]:
    answers: dict[str, str] = {}
    for group in calls(names):
        out, err = as_nobody([sys.executable, CLIENTS, str(folder), *group], home).communicate(timeout=180)
        assert out, err
        answers |= json.loads(out.splitlines()[-1])
    return answers


def open_doors(answers: dict[str, str]) -> set[str]:
    """Doors that were open; the others refused in words, and did not hang or break."""
    for name, answer in answers.items():
        assert answer == "in" or any(word in answer for word in REFUSALS), (name, answer)
    return {name for name, answer in answers.items() if answer == "in"}


@pytest.fixture
def home(tmp_path_factory):
    with tempfile.TemporaryDirectory(prefix="doors-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_doors__are_open_to_the_owner_and_shut_to_another_user(home, tmp_path):
    with RunningFabric(tmp_path / "run") as fabric:
        assert open_doors(tried_by_nobody(home, fabric.folder)) == set()
        assert open_doors(tried_by_owner(fabric.folder)) >= OF_OWNER
        assert open_doors(tried_by_owner(fabric.folder)) & BY_ANYBODY == set()
        assert "0 active" in fabric.type_line("faults", "active")


def test_garbage__on_every_port_leaves_the_prompt_clean_and_the_fabric_whole(tmp_path):
    with RunningFabric(tmp_path / "run", "--dash") as fabric:
        page = json.loads((fabric.folder / "dash.json").read_text())["url"]
        ports = [9559, 9339, 9340, int(page.split(":")[2].split("/")[0])]
        rubbish = (
            os.urandom(300),
            b"\x16\x03\x01" * 60,
            b"GET " + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        )
        for port in ports:
            for number in range(150):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(rubbish[number % len(rubbish)])
        fabric.type_line("sh echo after", "after\n")
        assert open_doors(tried_by_owner(fabric.folder)) >= OF_OWNER
        assert "0 active" in fabric.type_line("faults", "active")
    assert "Traceback" not in fabric.output and "Error handling" not in fabric.output
    assert "Traceback" not in (fabric.folder / "log" / "controller.log").read_text()


def test_tls__takes_who_trusts_the_certificate_and_shows_the_token(home, tmp_path):
    with RunningFabric(tmp_path / "run", "--tls") as fabric:
        assert open_doors(tried_by_owner(fabric.folder)) == OF_OWNER | WITH_TOKEN_BY_TLS
        assert open_doors(tried_by_nobody(home, fabric.folder)) == set()


def test_open__is_for_everybody(home, tmp_path):
    with RunningFabric(tmp_path / "run", "--open") as fabric:
        assert open_doors(tried_by_nobody(home, fabric.folder, (*BY_ANYBODY, "run folder"))) == BY_ANYBODY


def test_example_of_prometheus__shows_the_token():
    (job,) = YAML(typ="safe").load(ROOT / "examples/monitoring/prometheus.yml")["scrape_configs"]
    assert job["authorization"]["credentials_file"] == "/run/mrc-testbed/token"
