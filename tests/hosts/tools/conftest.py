"""The run folder of a fabric, for tools."""

from __future__ import annotations

import json

import pytest

from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=2)


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A run folder with a plan and no process behind it."""
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    monkeypatch.delenv("MRC_HOST", raising=False)
    return tmp_path
