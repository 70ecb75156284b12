"""Fixtures for tests on top of the testbed.

Use them by `pytest -p mrc_testbed.testing`, or `pytest_plugins` of a conftest.py.

In memory, no root (docs/p4-development.md):

    p4_program   p4_program("router.p4"): a compiled program, compiled once a session
    p4_switch    p4_switch("router.p4"): a mrc_testbed.switch.tools.p4_switch.P4Switch, fresh for each test

On a live fabric, as root (docs/scenarios.md):

    fabric       the default fabric with controller and agents, shared by the tests of a module
    transfer     transfer("h0", "h2"): a paced file transfer to follow; checks the bytes that arrived by itself
    cut          cut("p0-t0-0", "p0-t1-1"): a link goes down, until the test is over or .restore() is called

A fixture of the same name in a conftest.py takes the place of one of these. This module imports nothing but pytest:
what a fixture needs is loaded when a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from mrc_testbed.switch.compiler import CompiledProgram
    from mrc_testbed.switch.tools.p4_switch import P4Switch
    from mrc_testbed.testing.checked_transfer import CheckedTransfer
    from mrc_testbed.topologies.lab.fabric import Fabric


# ---- P4 in memory


class CompileProgram(Protocol):
    """Fixture `compile_program`."""

    def __call__(
        self, source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()
    ) -> CompiledProgram: ...


class MakeSwitch(Protocol):
    """Fixture that makes switches."""

    def __call__(
        self,
        source: Path | str,
        *,
        include: Sequence[Path | str] = (),
        defines: Sequence[str] = (),
        seed: int = 0,
    ) -> P4Switch: ...


@pytest.fixture(scope="session")
def p4_program() -> CompileProgram:
    """`p4_program(path)`: compile a program, or take what this session has compiled already.

    A relative path starts at the current folder; `p4_switch` looks beside the test first. The text of a program will
    do, too. Mistakes in the program raise P4Error: `file:line:column: message`.
    """
    programs: dict[Any, CompiledProgram] = {}

    def program(
        source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = ()
    ) -> CompiledProgram:
        from mrc_testbed.switch.compiler import compile_program
        from mrc_testbed.switch.device.native import build_ahead

        key = (str(source), tuple(map(str, include)), tuple(defines))
        if key not in programs:
            build_ahead()
            programs[key] = compile_program(source, include=include, defines=defines)
        return programs[key]

    return program


@pytest.fixture
def p4_switch(p4_program: CompileProgram, request: pytest.FixtureRequest) -> Iterator[MakeSwitch]:
    """`p4_switch(path)`: a fresh switch in memory that runs a program.

    Paths start at the test's own folder.
    """
    switches: list[P4Switch] = []

    def switch(
        source: Path | str, *, include: Sequence[Path | str] = (), defines: Sequence[str] = (), seed: int = 0
    ) -> P4Switch:
        from mrc_testbed.switch.tools.p4_switch import P4Switch

        if isinstance(source, Path) or "\n" not in source:
            local_path = request.path.parent / source
            source = local_path if local_path.exists() else Path(source)
        switches.append(P4Switch(p4_program(source, include=include, defines=defines), seed=seed))
        return switches[-1]

    yield switch
    for p4switch in switches:
        p4switch.close()


# ---- a live fabric


@pytest.fixture(scope="module")
def fabric(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """The default fabric: planes, switches, hosts with agents, controller. Skips without root.

    Its switches are embedded ones, or of the target given by indirect parametrization ("bmv2").
    """
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets")
    from mrc_testbed.topologies.lab.fabric import Fabric
    from mrc_testbed.topologies.lab.options import LabOptions
    from mrc_testbed.topologies.plan import Plan

    target = getattr(request, "param", "embedded")
    with Fabric(Plan(), LabOptions(target=target), tmp_path_factory.mktemp("run")) as fabric:
        yield fabric


class Begin(Protocol):
    """Fixture that begins a transfer of random bytes."""

    def __call__(
        self, source: str = "h0", destination: str = "h2", *, size: int = ..., rate_bps: float | None = ...
    ) -> CheckedTransfer: ...


@pytest.fixture
def transfer(fabric: Fabric, tmp_path: Path) -> Iterator[Begin]:
    """`transfer(source, destination)` begins one; afterwards its links are restored and its QP closed."""
    open_ones: list[CheckedTransfer] = []

    def begin(source: str = "h0", destination: str = "h2", **options: Any) -> CheckedTransfer:
        from mrc_testbed.testing.checked_transfer import CheckedTransfer

        transfer_check = CheckedTransfer(fabric, source, destination)
        open_ones.append(transfer_check)
        transfer_check.begin(tmp_path, **options)
        return transfer_check

    yield begin
    for transfer_check in open_ones:
        transfer_check.clean_up()


class LinkCut:
    """A link that is down."""

    def __init__(self, fabric: Fabric, a: str, b: str) -> None:
        self._fabric, self._ends = fabric, (a, b)
        self.cut_at = fabric.link(a, b, is_up=False)
        """CLOCK_MONOTONIC seconds."""
        self.restored_at: float | None = None

    def restore(self) -> None:
        """Bring it up again; once is enough."""
        if self.restored_at is None:
            self.restored_at = self._fabric.link(*self._ends, is_up=True)


@pytest.fixture
def cut(fabric: Fabric) -> Iterator[Any]:
    """`cut(a, b)`: take the link between two nodes down, both ends; it is restored after the test.

    To know when a transfer's EVs left the link and came back, cut by `transfer(...).cut(fabric.plan.link(a, b))`.
    """
    link_cuts: list[LinkCut] = []

    def take_down(a: str, b: str) -> LinkCut:
        link_cuts.append(LinkCut(fabric, a, b))
        return link_cuts[-1]

    yield take_down
    for link_cut in link_cuts:
        link_cut.restore()
