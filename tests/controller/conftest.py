"""Fixtures that the controller's tests share: the P4Info of both programs, compiled from p4src."""

import pytest
from finsy import P4Schema

from mrc_testbed.controller.p4runtime.entries import Catalog
from mrc_testbed.switch.compiler import compile_program
from tests.repository import P4SRC


def catalog_of(program: str) -> Catalog:
    return Catalog(P4Schema(compile_program(P4SRC / f"{program}.p4").p4info, b"config"))


@pytest.fixture(scope="session")
def srv6() -> Catalog:
    return catalog_of("srv6")


@pytest.fixture(scope="session")
def spray() -> Catalog:
    return catalog_of("spray")
