"""Fabrics by name: folders, records of living and dead ones, and which of them a command means."""

import json
import os
import subprocess
from dataclasses import asdict

import pytest

from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.ipc.rundir import FabricError, RunDir, RunFiles, RunState
from mrc_testbed.topologies.plan import Plan


def record(fabrics, name, *, is_alive=True, is_whole=True, began_at=1.0):
    """Write the record of a fabric that this process, or a process that has gone, holds."""
    folder = fabrics.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    state = RunState(ports={"P4Runtime": 9559}, began_at=began_at, is_whole=is_whole)
    if not is_alive:
        state.front_start = 1
    RunFiles(folder).state_file.write_text(json.dumps(asdict(state)))
    RunFiles(folder).plan_file.write_text(json.dumps(Plan().to_json()))


@pytest.fixture
def fabrics(tmp_path):
    return Fabrics(tmp_path)


def test_folder__of_the_first_fabric_is_the_run_folder_itself(fabrics, tmp_path):
    assert fabrics.folder("mrc") == tmp_path and fabrics.folder("b") == tmp_path / "fabrics" / "b"
    for name in ("mrc", "b", "lab-2"):
        folder = fabrics.folder(name)
        assert Fabrics.name_of(folder) == name and Fabrics.base_of(folder) == tmp_path


@pytest.mark.parametrize("name", ["", "B", "2b", "../x", "a/b", "a" * 17, "b\n"])
def test_folder__refuses_what_is_no_name(fabrics, name):
    with pytest.raises(FabricError, match=r"is no name of a fabric. Cure: "):
        fabrics.folder(name)


def test_records__tell_the_living_from_the_dead(fabrics):
    assert fabrics.records() == []
    record(fabrics, "b", began_at=2.0)
    record(fabrics, "mrc", is_alive=False)
    record(fabrics, "c", is_whole=False, began_at=3.0)
    assert [(r.name, r.condition) for r in fabrics.records()] == [("mrc", "dead"), ("b", "up"), ("c", "starting")]
    fabrics.records()[1].files.controller_file.write_text('{"url": "http://127.0.0.1:9340/v1", "pid": 1}')
    fabrics.records()[1].files.dash_file.write_text('{"url": "http://127.0.0.1:9341/?key=x:1/", "pid": 1}')
    assert fabrics.records()[1].ports() == {"P4Runtime": 9559, "controller": 9340, "page": 9341}


def test_records__an_ended_front_process_that_nobody_reaped_is_dead(fabrics):
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        state = RunState(front_pid=process.pid)
        from mrc_testbed.ipc import procfs

        state.front_start = procfs.start_time(process.pid)
        fabrics.base.joinpath("state.json").write_text(json.dumps(asdict(state)))
        assert fabrics.records()[0].condition == "dead"


def test_records__a_broken_one_is_named_with_a_cure(fabrics, tmp_path):
    (tmp_path / "state.json").write_text('{"no": 1}')
    with pytest.raises(FabricError, match=r"state.json cannot be read: .*no.*\. Cure: "):
        fabrics.records()


def test_choose__the_only_living_one_by_default(fabrics):
    with pytest.raises(FabricError, match=r"no fabric is running in .* Cure: start one with `mrc up`"):
        fabrics.choose()
    record(fabrics, "mrc", is_alive=False)
    record(fabrics, "b")
    assert fabrics.choose().name == "b" and fabrics.choose("b").name == "b"
    assert fabrics.choose("mrc", dead=True).name == "mrc"
    with pytest.raises(FabricError, match=r"the fabric mrc is dead: .* Cure: `mrc down mrc`"):
        fabrics.choose("mrc")
    with pytest.raises(FabricError, match=r"no fabric 'x' \(has: b\). Cure: "):
        fabrics.choose("x")
    record(fabrics, "c", began_at=2.0)
    with pytest.raises(FabricError, match=r"several fabrics are up: b, c. Cure: name one, as in --fabric b"):
        fabrics.choose()


def test_asked_folder__inside_a_host_is_that_of_its_own_fabric(fabrics, tmp_path, monkeypatch):
    monkeypatch.delenv("MRC_HOST", raising=False)
    assert fabrics.asked_folder(None) == tmp_path  # whose reader says that nothing is up
    record(fabrics, "b")
    assert fabrics.asked_folder(None) == fabrics.folder("b")
    record(fabrics, "mrc")
    for variable in ("MRC_HOST", "MRC_OWN_FABRIC"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1")
            assert fabrics.asked_folder(None) == tmp_path
    with pytest.raises(FabricError, match="several fabrics are up"):
        fabrics.asked_folder(None)


def test_free_name__is_the_first_that_no_living_fabric_has(fabrics):
    assert fabrics.free_name() == "mrc"
    record(fabrics, "mrc")
    record(fabrics, "mrc2", is_alive=False)
    assert fabrics.free_name() == "mrc2"
    record(fabrics, "mrc2")
    assert fabrics.free_name() == "mrc3"


def test_run_folder__may_hold_the_folders_of_other_fabrics(fabrics, tmp_path):
    """Test what refused `mrc up` beside a first fabric that had another name."""
    with RunDir(fabrics.folder("b")) as run_dir:
        run_dir.begin()
        with RunDir(tmp_path) as first:
            first.begin()
            first.remove_files()
        assert run_dir.state_file.exists()
