"""The fault journal: what is written is there again, whatever ended the writer."""

import json
import logging
import os

import pytest

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.faults import journal as journal_module
from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.faults.journal import Journal
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Plan


def write(tmp_path, *faults, is_ready=False, policy=None, avoided_names=None):
    journal = Journal.open(tmp_path)
    for change, fault in faults:
        journal.record_fault(change, fault, 1.0)
    if is_ready:
        journal.record_ready(2.0)
    if policy:
        journal.record_policy(policy)
    if avoided_names is not None:
        journal.record_reaction(avoided_names)
    journal.close()


def read(tmp_path):
    journal = Journal.open(tmp_path)
    journal.close()
    return journal.content


def test_journal__last_word_on_every_fault(tmp_path):
    write(tmp_path, ("raised", {"number": 2, "a": 1}), ("raised", {"number": 1}), ("cleared", {"number": 2, "a": 2}))
    assert read(tmp_path).faults == [{"number": 1}, {"number": 2, "a": 2}]
    assert (read(tmp_path).was_ready, read(tmp_path).denylist_policy) == (False, None)


def test_journal__ready_policy_and_reaction_are_remembered(tmp_path):
    write(tmp_path, is_ready=True, policy="lossy", avoided_names=["p0-t0-1 p0-t1-0"])
    content = read(tmp_path)
    assert (content.was_ready, content.denylist_policy, content.avoided_names) == (True, "lossy", ["p0-t0-1 p0-t1-0"])
    write(tmp_path, avoided_names=[])
    assert read(tmp_path).avoided_names == []


@pytest.mark.parametrize("torn", [b"{", b'{"kind":"fault","fault":{"number":9', b"\xff\xfe", b"x" * 100_000])
def test_journal__a_torn_last_line_is_cut_off_and_the_next_one_is_whole(tmp_path, torn):
    write(tmp_path, ("raised", {"number": 1}))
    with RunFiles(tmp_path).fault_journal.open("ab") as out:
        out.write(torn)
    write(tmp_path, ("raised", {"number": 2}))
    assert [f["number"] for f in read(tmp_path).faults] == [1, 2]
    assert all(json.loads(line) for line in RunFiles(tmp_path).fault_journal.read_text().splitlines())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        "{}",
        '{"kind": 7}',
        '{"kind":"fault"}',
        '{"kind":"fault","fault":7}',
        "[" * 9999,
    ],
)
def test_journal__nonsense_inside_is_passed_over(tmp_path, line, caplog):
    write(tmp_path, ("raised", {"number": 1}))
    with RunFiles(tmp_path).fault_journal.open("a") as out:
        out.write(line + "\n")
    write(tmp_path, ("raised", {"number": 2}))
    with caplog.at_level(logging.CRITICAL):
        assert [f["number"] for f in read(tmp_path).faults] == [1, 2]


def test_journal__every_cut_of_the_file_can_be_read(tmp_path):
    """A kill may stop at any byte: a prefix of what was written is known, and nothing else."""
    write(tmp_path, *(("raised", {"number": n, "text": "ä" * n}) for n in range(1, 4)))
    data = RunFiles(tmp_path).fault_journal.read_bytes()
    for size in range(len(data) + 1):
        RunFiles(tmp_path).fault_journal.write_bytes(data[:size])
        numbers = [f["number"] for f in read(tmp_path).faults]
        assert numbers == list(range(1, len(numbers) + 1))


def test_journal__one_controller_at_a_time(tmp_path):
    journal = Journal.open(tmp_path)
    with pytest.raises(JsonlError, match="another controller runs in this run folder"):
        Journal.open(tmp_path)
    journal.close()
    Journal.open(tmp_path).close()


def test_journal__of_another_boot_is_forgotten(tmp_path):
    write(tmp_path, ("raised", {"number": 1}), is_ready=True)
    path = RunFiles(tmp_path).fault_journal
    lines = path.read_text().splitlines()
    path.write_text("\n".join(['{"kind":"boot","id":"another"}', *lines[1:]]) + "\n")
    assert (read(tmp_path).faults, read(tmp_path).was_ready) == ([], False)


def test_journal__long_ones_are_compacted_and_stay_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 2000)
    updates = [("updated", {"number": n % 3, "n": n}) for n in range(200)]
    write(tmp_path, *updates, is_ready=True, policy="all", avoided_names=["a"])
    previous_size = os.path.getsize(RunFiles(tmp_path).fault_journal)
    journal = Journal.open(tmp_path)
    assert os.path.getsize(RunFiles(tmp_path).fault_journal) < previous_size / 4
    with pytest.raises(JsonlError):
        Journal.open(tmp_path)
    journal.record_fault("raised", {"number": 7}, 1.0)
    journal.close()
    content = read(tmp_path)
    assert [f["number"] for f in content.faults] == [0, 1, 2, 7]
    assert (content.was_ready, content.denylist_policy, content.avoided_names) == (True, "all", ["a"])


def test_journal__where_there_can_be_none(tmp_path):
    RunFiles(tmp_path).fault_journal.mkdir()
    with pytest.raises(InputError, match=r"faults\.jsonl"):
        Journal.open(tmp_path)


# ---- the list that comes back -------------------------------------------------------------------------------

GNMI = "gnmi x"


def with_faults():
    faults = FaultCorrelator(Plan())
    faults.port("p0-t0-0-eth3", "DOWN", source=GNMI, now=1.0)
    faults.port("p1-t0-0-eth3", "DOWN", source=GNMI, now=1.0)
    faults.on_timer(1.2)
    faults.port("p1-t0-0-eth3", "UP", source=GNMI, now=3.0)
    return faults


def reload_faults(faults, now=10.0):
    restored_list = FaultCorrelator(Plan())
    restored_list.restore(json.loads(json.dumps([f.to_json() for f in faults.all_faults()])), now, 4.0)
    return restored_list


def test_restore__the_same_list_word_for_word():
    faults = with_faults()
    assert [f.to_json() for f in reload_faults(faults).all_faults()] == [f.to_json() for f in faults.all_faults()]


def test_restore__seen_again_it_goes_on_with_its_number():
    restored_list = reload_faults(with_faults())
    restored_list.port("p0-t0-0-eth3", "DOWN", source=GNMI, now=10.5)
    restored_list.on_timer(11.0)
    restored_list.on_timer(20.0)
    (fault,) = restored_list.active()
    assert (fault.number, fault.first_seen) == (1, 1.0)
    (evidence,) = fault.evidence()
    assert (evidence["first_seen"], evidence["last_seen"], evidence["count"]) == (1.0, 10.5, 2)


def test_restore__not_seen_it_is_over_in_time():
    restored_list = reload_faults(with_faults())
    restored_list.on_timer(13.0)
    assert len(restored_list.active()) == 1
    restored_list.on_timer(14.1)
    assert restored_list.active() == [] and [f.number for f in restored_list.all_faults()] == [1, 2]
    assert [(change, f.number) for change, f in restored_list.changes()] == [("cleared", 1)]


def test_restore__new_ones_count_on():
    restored_list = reload_faults(with_faults())
    restored_list.port("p2-t0-0-eth3", "DOWN", source=GNMI, now=11.0)
    restored_list.on_timer(11.2)
    assert [f.number for f in restored_list.active()] == [1, 3]


@pytest.mark.parametrize("record", [{}, {"number": "x"}, {"number": 1, "location": "p9-t9-9"}, {"alternatives": 7}])
def test_restore__records_of_nothing_known_are_passed_over(record):
    faults = FaultCorrelator(Plan())
    valid_record = with_faults().all_faults()[0].to_json()
    faults.restore(
        [record, {**valid_record, "location": "p9-t0-0 p9-t1-0"}, {**valid_record, "how": "odd"}, valid_record],
        5.0,
        1.0,
    )
    assert [f.number for f in faults.all_faults()] == [1]
