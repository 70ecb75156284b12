"""Programs of a switch over P4Runtime, without root: load, entries, swap."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.topologies.lab.p4_program import ProgramError
from mrc_testbed.topologies.p4lab import switch
from mrc_testbed.topologies.p4lab.entries import updates_of
from mrc_testbed.topologies.p4lab.switch import LabSwitchError, SwitchClient, compile_file
from tests.topologies.p4lab.programs import CROSS_WIRE, MAC_SWITCH, mac_entries


def load(client, text):
    program = compile_program(text)
    client.load(program)
    updates, mistakes = updates_of(mac_entries(), program.p4info)
    assert mistakes == []
    assert client.write(updates) == [None, None]
    return program


def test_swap__keeps_entries_and_counts(address):
    with SwitchClient("s1", address, 0) as client:
        program = load(client, MAC_SWITCH)
        reload = client.swap(program.p4info, compile_program(MAC_SWITCH + "\n// another text\n"))
        assert (reload.kept_count, reload.refusals, reload.has_counts) == (2, (), True)
        assert len(client.read(program.p4info)) == 2
    with SwitchClient("s1", address, 0) as client:  # the role is free again
        assert len(client.read(program.p4info)) == 2


def test_swap__names_entries_that_do_not_fit(address):
    with SwitchClient("s1", address, 0) as client:
        program = load(client, MAC_SWITCH)
        narrow = compile_program(MAC_SWITCH.replace("bit<9> port", "bit<1> port").replace("= port", "= (bit<9>) port"))
        reload = client.swap(program.p4info, narrow)
        assert (reload.kept_count, len(reload.refusals), reload.has_counts) == (1, 1, False)
        assert reload.refusals[0].startswith("I.macs hdr.ethernet.dst=0x80000000222 -> I.forward(port=0x2): ")
        reload = client.swap(narrow.p4info, compile_program(CROSS_WIRE))
        assert reload.refusals[0].endswith("the new program has no table I.macs")
        assert "1 do not fit; counters and registers began anew" in reload.text()
        assert reload.to_json()["refused"] == list(reload.refusals)


def test_write__tells_the_reason_of_each_refusal(address):
    with SwitchClient("s1", address, 0) as client:
        program = load(client, MAC_SWITCH)
        updates, _ = updates_of(mac_entries(), program.p4info)
        updates[0].entity.table_entry.table_id = 7
        first, second = client.write(updates)
        assert "no table with id 7" in first
        assert second.startswith("ALREADY_EXISTS: ")


def test_program_with_mistakes__is_refused_with_its_line(tmp_path, address):
    path = tmp_path / "my.p4"
    path.write_text(MAC_SWITCH.replace("std.egress_spec = port", "std.egress_speck = port"))
    with pytest.raises(ProgramError, match=r"my.p4:\d+:\d+: error: .*egress_speck"):
        compile_file(path)
    with pytest.raises(ProgramError, match="no P4 program"):
        compile_file(tmp_path / "gone.p4")
    with pytest.raises(LabSwitchError, match="no device 9"), SwitchClient("s1", address, 9):
        pass


def test_role__that_another_client_holds_is_waited_for(address):
    """A switch has the role free only some time after a client has closed."""
    first = SwitchClient("s1", address, 0)
    first.__enter__()
    waiting = threading.Event()
    second = SwitchClient("s1", address, 0)
    second.take_role = lambda: waiting.set() or SwitchClient.take_role(second)
    with ThreadPoolExecutor(1) as pool:
        entering = pool.submit(second.__enter__)
        assert waiting.wait(10)
        first.__exit__(None, None, None)
        with entering.result(10) as client:
            load(client, MAC_SWITCH)


def test_role__that_stays_taken_is_an_error(address, monkeypatch):
    monkeypatch.setattr(switch, "ROLE_WAIT_S", 0.1)
    with (
        SwitchClient("s1", address, 0),
        pytest.raises(LabSwitchError, match=r"^s1: .* is already used .* Cure: wait for the other command"),
        SwitchClient("s1", address, 0),
    ):
        pass
