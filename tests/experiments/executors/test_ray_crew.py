"""Ray: a study that is killed twice and loses a node is the same; errors that name the cure."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.experiments.executors.clusters import (
    WITHOUT_RAY,
    free_port,
    has,
    ray_cluster,
)
from tests.experiments.executors.killed_study import STUDY, count_results, digest, files, killed_twice, mrc, refusal


def in_one_go(folder: Path) -> Path:
    """Return the same runs without a look before the last of them: all are handed in at once."""
    path = files(folder)
    path.write_text(STUDY.replace("min: 2", "min: 6"))
    return path


@pytest.mark.skipif(not has("ray"), reason=WITHOUT_RAY)
def test_ray__killed_twice_a_node_lost_and_resumed_is_the_same(tmp_path, study_digest):
    with ray_cluster(tmp_path) as nodes:
        assert killed_twice(tmp_path, "ray") == study_digest
        folder, out = tmp_path / "other", tmp_path / "other" / "out"
        study = in_one_go(folder)
        command = mrc("study", study, "--executor", "ray", "--task-time", "0.5s", "--out", out)
        while command.poll() is None and not count_results(out):
            time.sleep(0.02)
        nodes[1].terminate()
        output = command.communicate()[0]
        assert command.returncode == 0 and digest(out) == study_digest, output


@pytest.mark.skipif(not has("ray"), reason=WITHOUT_RAY)
def test_no_ray_cluster__is_told_with_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    files(tmp_path)
    message = refusal("study", str(tmp_path / "study.yaml"), "--executor", "ray", "--out", str(tmp_path / "out"))
    assert "--executor ray: no cluster (no process listens at 127.0.0.1:" in message and "ray start --head" in message
    assert not (tmp_path / "out").exists()
