"""Processes in network namespaces of their own, joined by veth pairs: benches without a fabric.

The namespaces live as long as their processes (`unshare -n`), so nothing is left behind however a bench ends. A child
is a module run with `python -m`; it says `ready` when it may be joined, and each answer is one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mrc_testbed.files.package import PACKAGE

DEVICE_MTU = 9216
FIRST_INDEX = 100
"""Interface indices of the two ends differ; hosts/nic/netlink.py says why they must."""

CableEnd = tuple[int, str]
"""Index of a child and name of its interface."""


class NamespaceChild:
    """One end: a Python process in a network namespace of its own, talked to by lines of JSON."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            ["unshare", "-n", sys.executable, "-m", module, *arguments],
            cwd=PACKAGE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout
        self.name = module
        if self._line() != "ready":
            raise RuntimeError(f"{module} did not start")

    def _line(self) -> str:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}: see the error above")
        return line.strip()

    def send(self, message: Any) -> None:
        """Give the child one line."""
        self._requests.write(json.dumps(message) + "\n")
        self._requests.flush()

    def answer(self) -> Any:
        """The next line of the child. Raises RuntimeError when it ended instead."""
        return json.loads(self._line())

    def close(self) -> None:
        """End it; its namespace and interfaces go with it."""
        self._requests.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._answers.close()


@contextlib.contextmanager
def join(
    module: str, children_arguments: Sequence[Sequence[str]], cables: Sequence[tuple[CableEnd, CableEnd]]
) -> Iterator[list[NamespaceChild]]:
    """Yield children of `module`, one for each list of arguments, and a veth pair for each cable."""
    children: list[NamespaceChild] = []
    try:
        for arguments in children_arguments:
            children.append(NamespaceChild(module, *arguments))
        pids = [str(child.process.pid) for child in children]
        index = FIRST_INDEX
        for (child_a, name_a), (child_b, name_b) in cables:
            # Indices are given, for those of the two ends must differ: see FIRST_INDEX.
            end_a = (name_a, "netns", pids[child_a], "index", str(index))
            end_b = (name_b, "netns", pids[child_b], "index", str(index + 1))
            _ip("link", "add", *end_a, "type", "veth", "peer", "name", *end_b)
            index += 2
            for pid, name in ((pids[child_a], name_a), (pids[child_b], name_b)):
                _ip_in(pid, "link", "set", name, "mtu", str(DEVICE_MTU), "addrgenmode", "none", "up")
        yield children
    finally:
        for child in children:
            child.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _ip_in(pid: str, *words: str) -> None:
    subprocess.run(["nsenter", "-t", pid, "-n", "ip", *words], check=True)


def serve() -> None:
    """Report to the parent that this child runs, then wait until the parent has made the cables."""
    say_line("ready")
    sys.stdin.readline()


def say_line(line: str) -> None:
    """Send one line of text from a child to the parent."""
    print(line, flush=True)


def send_json(message: Any) -> None:
    """Send one line of JSON from a child to the parent."""
    say_line(json.dumps(message))
