"""Live P4 lab: ping, a reload under it, controllers of others, a cut, mistakes."""

import io
import json
import os
import queue
import re
import tempfile

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from mrc_testbed.cli.prompt import iperf as ip_bandwidth
from mrc_testbed.cli.prompt.lab_shell import LabCLI
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.topologies.lab.p4_program import ProgramError
from mrc_testbed.topologies.p4lab.lab import LabPrograms, P4Lab
from mrc_testbed.topologies.p4lab.topology import pair_topology
from tests.topologies.p4lab.programs import CROSS_WIRE, MAC_SWITCH, mac_entries

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets")
FIRST_PORT = 50251


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("lab")
    (out / "mac.p4").write_text(MAC_SWITCH)
    (out / "cross.p4").write_text(CROSS_WIRE)
    (out / "wrong.p4").write_text(CROSS_WIRE.replace("3 -", "3 - x -"))
    (out / "s1-runtime.json").write_text(json.dumps(mac_entries()))
    return out


@pytest.fixture(scope="module")
def lab(folder, tmp_path_factory):
    programs = LabPrograms(folder / "mac.p4", {"s1": folder / "s1-runtime.json"}, FIRST_PORT, open_to_all=True)
    with P4Lab(pair_topology(), programs, tmp_path_factory.mktemp("run")) as lab:
        yield lab


def session(lab, *lines):
    """Run lines at the prompt; return what it said, and how many failed."""
    out = io.StringIO()
    with tempfile.TemporaryFile("w+") as commands:  # Mininet's CLI polls its input, so it is a file
        commands.write("\n".join((*lines, "exit", "")))
        commands.seek(0)
        failures = LabCLI(lab, commands, out).run_session()
    return out.getvalue(), failures


@needs_root
@pytest.mark.root
class TestLiveLab:
    def test_hosts__reach_each_other(self, lab):
        text, failures = session(lab, "h1 ping -c1 -W2 h2", "pingall")
        assert "1 received" in text
        assert "0% dropped (2/2 received)" in text
        assert failures == 0

    def test_reload__swaps_keeps_and_names_what_does_not_fit(self, lab, folder):
        text, failures = session(lab, f"reload {folder}/wrong.p4", "h1 ping -c1 -W2 h2", "reload")
        assert "wrong.p4:" in text and "*** " in text
        assert "1 received" in text
        assert "; 2 entries kept" in text
        assert failures == 1
        text, failures = session(lab, f"reload {folder}/cross.p4 s1", "h1 ping -c1 -W2 h2", "entries")
        assert "2 do not fit" in text and "the new program has no table I.macs" in text
        assert "1 received" in text
        assert "s1: cross.p4, 0 entries" in text
        text, failures = session(lab, f"reload {folder}/mac.p4", f"load s1 {folder}/s1-runtime.json", "entries s1")
        assert (
            "s1: 2 entries written" in text and "I.macs hdr.ethernet.dst=0x80000000111 -> I.forward(port=0x1)" in text
        )
        assert failures == 0

    def test_mistakes__cost_a_line_each(self, lab):
        text, failures = session(lab, "nix", "h1", "reload a.p4 b.p4", "reload s9", "load s1", "link h1 h2 down")
        assert failures == 6
        for cure in ("no command or node 'nix'", "usage: h1 COMMAND", "two programs", "no switch 's9'", "usage: load"):
            assert cure in text

    def test_iperf__measures_or_says_in_a_line_why_not(self, lab, monkeypatch):
        monkeypatch.setattr(ip_bandwidth, "DURATION_S", 1)
        monkeypatch.setattr(ip_bandwidth, "CONNECT_TIMEOUT_MS", 500)
        text, failures = session(lab, "iperf", "iperfudp 3M h2 h1", "h1 true")
        assert re.search(r"TCP bandwidth between h1 and h2\n\*\*\* Results: \['[\d.]+ Mbits/sec', '", text), text
        assert re.search(r"UDP bandwidth between h2 and h1\n\*\*\* Results: \['3M', '[23]\.\d+ Mbits/sec'", text), text
        assert failures == 0
        mistakes = ("iperf h1 s1", "iperfudp x h1 h2")
        text, failures = session(lab, "link h1 s1 down", "iperf h1 h2", "link h1 s1 up", *mistakes)
        assert "*** iperf: h1 to h2: unable to connect" in text
        assert "*** no host 's1' (has: h1, h2)" in text and "*** usage: iperfudp [RATE HOST HOST]" in text
        assert failures == 3

    def test_exception_of_a_word__costs_a_line(self, lab, monkeypatch):
        monkeypatch.setattr(LabCLI, "do_entries", lambda _cli, _line: 1 // 0)
        text, failures = session(lab, "entries", "h1 echo goes on")
        assert "*** internal error in 'entries': ZeroDivisionError" in text and "goes on" in text and failures == 1
        assert "ZeroDivisionError" in lab.run_dir.log("cli").read_text()

    def test_cut_link__loses_packets_until_it_is_restored(self, lab):
        text, _ = session(lab, "link h1 s1 down", "h1 ping -c1 -W1 h2", "link h1 s1 up", "h1 ping -c2 -W2 h2")
        assert "1 packets transmitted, 0 received" in text
        assert "2 packets transmitted, 0 received" not in text

    def test_controller_made_for_bmv2__loads_a_wrapped_program(self, lab):
        program = compile_program(MAC_SWITCH)
        size = len(program.config)
        length = bytes(
            (size >> shift & 0x7F) | (0x80 if size >> shift + 7 else 0) for shift in range(0, 21, 7) if size >> shift
        )
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=0, election_id=p4r.Uint128(low=1), action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        )
        request.config.p4info.CopyFrom(program.p4info)
        request.config.p4_device_config = b"\x08\x01\x1a" + length + program.config
        bid = p4r.StreamMessageRequest()
        bid.arbitration.device_id, bid.arbitration.election_id.low = 0, 1
        with grpc.insecure_channel(f"127.0.0.1:{FIRST_PORT}") as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            requests = queue.SimpleQueue()
            requests.put(bid)
            stream = stub.StreamChannel(iter(requests.get, None))
            assert next(stream).arbitration.status.code == 0
            stub.SetForwardingPipelineConfig(request)
            requests.put(None)
        assert lab.running.entry_lines("s1") == []


@needs_root
@pytest.mark.root
def test_mistakes__stop_the_start_before_anything_is_made(folder, tmp_path):
    for source, error in (("wrong.p4", ProgramError), ("gone.p4", ProgramError)):
        with pytest.raises(error), P4Lab(pair_topology(), LabPrograms(folder / source), tmp_path / "run"):
            pass
    assert not (tmp_path / "run" / "state.json").exists()
    with pytest.raises(FabricError, match="switch s1 has no program"):
        P4Lab(pair_topology(), LabPrograms(), tmp_path / "run")
