"""Fixtures of the scripted resilience tests, beside testing/__init__.py: `fabric`, `transfer`, `cut`.

They run on the embedded switch, and on BMv2 as well where simple_switch_grpc and p4c-bm2-ss are on PATH.
"""

import shutil
from pathlib import Path

import pytest

from mrc_testbed.testing.checked_transfer import LIMIT_S

TARGETS = ["embedded", *(["bmv2"] if shutil.which("simple_switch_grpc") and shutil.which("p4c-bm2-ss") else [])]


def pytest_generate_tests(metafunc):
    if "fabric" in metafunc.fixturenames:
        metafunc.parametrize("fabric", TARGETS, indirect=True, scope="module")
    elif "target" in metafunc.fixturenames:
        metafunc.parametrize("target", TARGETS)


def pytest_collection_modifyitems(items):
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(f"{folder}/"):
            item.add_marker(pytest.mark.root)
            item.add_marker(pytest.mark.resilience)


@pytest.fixture(autouse=True)
def tables_unchanged(fabric):
    """Check that no fault changes a route in SRv6 mode: every switch keeps its tables of the start."""
    yield
    assert fabric.controller.request("verify", timeout_s=LIMIT_S)["unchanged_since_start"]


@pytest.fixture
def faults(fabric):
    """Return `faults()`, which returns the active entries of the controller's fault list as texts."""

    def active() -> list[str]:
        return [f["location"] for f in fabric.controller.request("faults")["faults"] if f["state"] == "active"]

    return active
