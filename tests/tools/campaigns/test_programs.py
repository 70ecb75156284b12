"""The campaign of RDMA programs under faults: its words, and how it judges programs that fail."""

from __future__ import annotations

import sys
import time

import pytest

from mrc_testbed.hosts.libmrc import library
from mrc_testbed.hosts.nicd.status import ProgramStatus
from tools.campaigns import programs


def test_client_words__have_the_address_where_the_program_wants_it():
    pair = programs.ProgramPair("x", ("a",), ("env", "program", "send", "--count", "3"), 3)
    assert pair.client_words("10.0.0.1") == ["env", "program", "send", "10.0.0.1", "--count", "3"]
    assert programs.perftest("ib_write_bw").client_words("h2")[-1] == "h2"


def test_pairs__need_files_for_what_is_built_outside_the_tree(tmp_path):
    names = [pair.name for pair in programs.pairs(None, None)]
    more_names = [
        pair.name for pair in programs.pairs(tmp_path / "mrc_example", tmp_path / "harness", tmp_path / "shim")
    ]
    assert all(name.startswith("ib") for name in names) and set(names) < set(more_names)
    assert len(set(more_names) - set(names)) == 1 + len(programs.NET_VERSIONS) + 2


def test_under_shim__both_ends_load_it_before_the_library(tmp_path):
    pair = programs.under_shim(tmp_path / "shim.so", programs.perftest("ib_write_lat"))
    for words in (pair.server, pair.client_words("h2")):
        assert list(words[:2]) == ["env", f"LD_PRELOAD={tmp_path}/shim.so:{library()}"]
        assert words[4] == "ib_write_lat"


def test_nccl_pair__names_its_version_and_has_the_address_behind_the_word_send(tmp_path):
    words = programs.nccl_pair(tmp_path, 11).client_words("h2")
    assert words[words.index("send") + 1] == "h2" and words[words.index("--net") + 1] == "v11"


REFUSAL_LINE = "libmrc: IBV_WR_RDMA_READ is no operation of MRC"


@pytest.mark.parametrize(
    ("statuses", "outputs", "reasons"),
    [
        ((1, 17), ("bandwidth", REFUSAL_LINE), []),
        ((1, 0), (REFUSAL_LINE, ""), ["ended with 0"]),
        ((1, None), (REFUSAL_LINE, ""), ["still running"]),
        ((1, 1), ("IBV_WR_RDMA_READ failed", "libmrc: no device"), ["no end names IBV_WR_RDMA_READ"]),
    ],
)
def test_refusals__end_both_programs_and_have_a_name(statuses, outputs, reasons):
    pair = next(pair for pair in programs.refused_pairs() if pair.name == "ib_read_bw")
    assert programs.refusal_failures(pair, statuses, outputs) == reasons


@pytest.mark.parametrize(
    ("line", "is_failure"),
    [
        ("[MRC ERROR] Data mismatch at 3", True),
        ("sent: 300 messages of 262144 bytes, 2 bad bytes", True),
        ("Completion with error at client", True),
        (" 65536      1000             203.43", False),
    ],
)
def test_failure_lines__are_told_from_others(line, is_failure):
    assert bool(programs.FAILURE_LINE.search(line)) == is_failure


def test_program_that_does_not_end__is_told():
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with programs._process(words) as process:
        assert programs._status(process, time.monotonic()) is None
    assert process.returncode is not None
    assert programs._failures([None, 3], ["", REFUSAL_LINE]) == ["still running", "ended with 3"]


def test_client_packets__meet_a_fault_when_packets_follow_it(monkeypatch, tmp_path):
    answers = [[status(5, 0)], [status(9, 2)], None, []]
    monkeypatch.setattr(programs, "programs_of", lambda _path: answers.pop(0))
    packets = programs.ClientPackets()
    packets.read_status(tmp_path)
    assert not packets.has_met_fault()
    packets.sent_at_fault = packets.sent
    assert not packets.has_met_fault()
    for _ in range(3):
        packets.read_status(tmp_path)
        assert packets.has_met_fault() and (packets.sent, packets.sent_again) == (9, 2)


def status(packets_sent, retransmitted):
    return ProgramStatus(1, 1, 1, 1, 1, packets_sent, retransmitted, 0, 0, 0, 0)
