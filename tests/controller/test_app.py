"""Controller against the real embedded daemon over loopback gRPC, with switches without ports."""

import asyncio
import json
import subprocess
import sys

import pytest
from finsy import P4Client
from finsy.proto import U128, p4r

from mrc_testbed.controller.config import read_inputs
from mrc_testbed.controller.p4runtime.entries import Catalog
from mrc_testbed.controller.p4runtime.qos import DEFAULT
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.topologies.lab.p4_program import source_of, write_program
from mrc_testbed.topologies.p4lab.switch import SwitchClient
from mrc_testbed.topologies.plan import Plan
from tests.controller.controller_fixture import PATIENCE_S, ROOT, Rig, wait_for

PLAN = Plan(planes=1, racks=2, spines=2, hosts_per_rack=1)


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path, PLAN) as rig:
        rig.start_daemon()
        yield rig


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A rig with a controller, for tests that leave the tables as they were."""
    with Rig(tmp_path_factory.mktemp("running"), PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        yield rig


CODEPOINTS = DEFAULT.codepoints


def entry_count_of(name: str) -> int:
    """Entries that a switch of PLAN needs beyond what its program begins with.

    Own uSID, uAs, neighbours, classes.
    """
    routes = PLAN.srv6_routes(PLAN.switch(name))
    return 1 + len(routes.adjacencies) + len(routes.next_hops) + len(CODEPOINTS)


def test_start__pushes_reads_back_and_is_ready(rig):
    rig.start_controller()
    status = rig.controller.request("status")
    assert status["ready"] is True
    assert (status["program"], status["plan"]) == ("srv6", PLAN.to_json())
    for switch in PLAN.switches:
        row = status["switches"][switch.name]
        assert (row["connected"], row["pipeline"], row["verified"]) == (True, True, True)
        assert row["entries_written"] == entry_count_of(switch.name)
        assert (
            row["entries"] == entry_count_of(switch.name) + 1
        )  # the default action of `trimming` is the program's own
        assert (row["writes_after_start"], row["restarts"]) == (0, 0)
    assert len({s["digest"] for s in status["switches"].values()}) == len(PLAN.switches)
    assert status["writes_after_start"] == 0

    verification = rig.controller.request("verify", entries=True)
    assert (verification["unchanged_since_start"], verification["differences"]) == (True, [])
    lines = verification["switches"]["p0-t1-1"]["lines"]
    assert [line for line in lines if "usid" in line] == [
        "my_usid locator_usid=0xfcbbbb001001 shift()",
        "my_usid locator_usid=0xfcbbbb00e000 shift_and_forward(port=1)",
        "my_usid locator_usid=0xfcbbbb00e001 shift_and_forward(port=2)",
        "usid_next locator_usid=0xfcbbbb002000 forward(port=1)",
        "usid_next locator_usid=0xfcbbbb002001 forward(port=2)",
    ]
    assert rig.stop_controller() == 0


def test_second_start__finds_everything_right_and_writes_nothing(rig):
    rig.start_controller()
    first = rig.controller.request("verify")["digests"]
    rig.stop_controller()
    rig.start_controller()
    status = rig.controller.request("status")
    assert [(s["entries_written"], s["pipeline_loads"]) for s in status["switches"].values()] == [(0, 0)] * 4
    assert rig.controller.request("verify")["digests"] == first


def test_restart__switch_is_written_again_and_the_fault_names_it(rig):
    rig.start_controller()
    with rig.controller.watch() as watch:
        rig.daemon.request("power", name="p0-t1-0", on=False)
        fault = wait_for(watch, "fault", change="raised", location="p0-t1-0")["fault"]
        assert (fault["kind"], fault["text"]) == ("T1", "T1 p0-t1-0 (P4Runtime stream lost)")
        verification = rig.controller.request("verify")
        assert verification["unchanged_since_start"] is False
        assert [line.split(" ")[0] for line in verification["differences"]] == ["p0-t1-0"]

        rig.daemon.request("power", name="p0-t1-0", on=True)
        wait_for(watch, "switch", switch="p0-t1-0", state="verified", reason="restarted, written again")
        wait_for(watch, "fault", change="cleared", location="p0-t1-0")
    row = rig.switch("p0-t1-0")
    assert (row["restarts"], row["reconnects"], row["pipeline_loads"]) == (1, 1, 2)
    assert row["writes_after_start_by_reason"] == {"restart": entry_count_of("p0-t1-0")}
    assert rig.controller.request("status")["writes_after_start"] == entry_count_of("p0-t1-0")
    assert rig.controller.request("verify")["unchanged_since_start"] is True
    assert [f["state"] for f in rig.controller.request("faults")["faults"]] == ["cleared"]


class Intruder:
    """Another controller, with a higher election id, that changes a table."""

    def __init__(self, rig, name, election_id=11):
        inputs = read_inputs(rig.run_dir)
        self.catalog: Catalog = inputs.catalog
        self.target = next(t for t in inputs.targets if t.name == name)
        self.client = P4Client(self.target.address)
        self.election_id = election_id

    async def __aenter__(self):
        await self.client.open(complete_request=self._sign)
        bid = p4r.MasterArbitrationUpdate(device_id=self.target.device_id, election_id=U128.encode(self.election_id))
        await self.client.send(p4r.StreamMessageRequest(arbitration=bid))
        await self.client.receive()
        return self

    async def __aexit__(self, *exc):
        await self.client.close()

    def _sign(self, message):
        message.election_id.CopyFrom(U128.encode(self.election_id))

    async def write(self, kind, entry):
        update = p4r.Update(type=kind, entity=entry.entity)
        await self.client.request(p4r.WriteRequest(device_id=self.target.device_id, updates=[update]))


def test_another_controller__is_waited_for_and_its_changes_are_found_and_undone(rig):
    rig.start_controller()
    with rig.controller.watch() as watch:

        async def intrude():
            async with Intruder(rig, "p0-t0-0") as intruder:
                match = {"locator_usid": 0xFCBBBB001000}
                entry = intruder.catalog.table_entry("usid_next", match, "forward", {"port": 9})
                await intruder.write(p4r.Update.MODIFY, entry)
                await asyncio.to_thread(wait_for, watch, "switch", switch="p0-t0-0", state="backup")
                return await asyncio.to_thread(rig.controller.request, "verify")

        reply = asyncio.run(intrude())
        assert reply["unchanged_since_start"] is False
        assert reply["differences"] == [
            "p0-t0-0: usid_next locator_usid=0xfcbbbb001000 is forward(port=9) (plan: forward(port=2))"
        ]
        wait_for(watch, "switch", switch="p0-t0-0", state="verified")
    assert rig.switch("p0-t0-0")["writes_after_start_by_reason"] == {"repair": 1}
    assert rig.controller.request("verify")["unchanged_since_start"] is True


def test_refused_program__ends_the_start_with_the_switch_and_its_reason(rig):
    (rig.run_dir / "program" / "config.p4").write_bytes(b"table { nonsense")
    command = [sys.executable, "-m", "mrc_testbed.controller", "--run-dir", str(rig.run_dir)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert "controller: a switch refuses what it was sent:" in result.stderr
    assert "p0-t0-0 (127.0.0.1:" in result.stderr and "load the program: INVALID_ARGUMENT" in result.stderr
    assert "Traceback" not in result.stderr


def test_northbound__unknown_op_lists_the_ops(running):
    with pytest.raises(Exception, match=r"no op 'x' \(has: status, faults, .*verify.*shutdown\)"):
        running.controller.request("x")


def test_second_controller__of_a_run_folder_is_refused(running):
    command = [sys.executable, "-m", "mrc_testbed.controller", "--run-dir", str(running.run_dir)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)
    assert result.returncode == 1
    assert "another controller runs in this run folder" in result.stderr
    assert running.controller.request("status")["ready"] is True


def test_spray__members_groups_and_seed(tmp_path):
    with Rig(tmp_path, PLAN, program="spray") as rig:
        rig.start_daemon()
        rig.start_controller()
        verification = rig.controller.request("verify", entries=True)
        assert (verification["unchanged_since_start"], verification["differences"]) == (True, [])
        lines = verification["switches"]["p0-t0-1"]["lines"]
        assert [line for line in lines if line.startswith(("route", "uplink", "ev_uplinks"))] == [
            "ev_uplinks uplink=0x00000000 use_uplink(port=2)",
            "ev_uplinks uplink=0x00000001 use_uplink(port=3)",
            "route dst_addr=fd00:0:1::1/128 forward(port=1)",
            "route dst_addr=fd00::/32 spray(uplink_group=1)",
            "uplink_choice default by_hash()",
            "uplink_selector group 1: member 2 weight 1 watch 2, member 3 weight 1 watch 3",
            "uplink_selector member 2: use_uplink(port=2)",
            "uplink_selector member 3: use_uplink(port=3)",
            "uplinks uplink_group=1 group(1)",
        ]
        rig.stop_controller()
        rig.start_controller()
        assert rig.switch("p0-t0-1")["entries_written"] == 0


def test_primary__who_takes_a_switch_is_told_and_the_controller_goes_on(rig):
    """Another local user becomes primary of one switch: which, with what id, and what no longer works."""
    rig.start_controller()

    async def intrude(watch):
        async with Intruder(rig, "p0-t1-0"):
            problem = wait_for(watch, "problem", change="begun")["problem"]
            assert (problem["kind"], problem["about"]) == ("not primary", "p0-t1-0")
            assert "election id 11" in problem["cause"] and "not kept as planned" in problem["effect"]
            answer = rig.controller.request("faults")
            assert (answer["active"], [p["number"] for p in answer["problems"]]) == (0, [problem["number"]])
            assert [p["about"] for p in rig.controller.request("status")["problems"]] == ["p0-t1-0"]
            with rig.controller.watch(events="problem") as second_watch:
                assert wait_for(second_watch, "problem", change="begun")["problem"]["about"] == "p0-t1-0"

    with rig.controller.watch(events="problem") as watch:
        asyncio.run(intrude(watch))
        assert wait_for(watch, "problem", change="over")["problem"]["over"] is not None
    assert rig.controller.request("faults", state="active")["problems"] == []
    assert rig.controller.request("faults")["problems"][0]["over"] is not None


@pytest.mark.root
def test_ports__cut_restore_and_power_become_faults(tmp_path):
    with Rig(tmp_path, PLAN, namespace=True) as rig:
        for link in PLAN.links:
            ends = (link.lower.interface, link.upper.interface)
            rig.run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for end in ends:
                rig.run("ip", "link", "set", end, "up")
        rig.start_daemon(ports=True)
        rig.start_controller()
        status = rig.controller.request("status")
        assert [w["interfaces"] for w in status["ports"]] == [sum(len(PLAN.ports(s.name)) for s in PLAN.switches)]
        assert rig.controller.request("faults") == {"faults": [], "active": 0, "problems": []}
        # One fault at a time, each mended before the next, so that none can be taken for part of another.
        with rig.controller.watch() as watch:
            rig.run("ip", "link", "set", "p0-t0-0-eth2", "down")
            fault = wait_for(watch, "fault", change="raised")["fault"]
            assert (fault["kind"], fault["location"]) == ("link", "p0-t0-0 p0-t1-0")
            rig.run("ip", "link", "set", "p0-t0-0-eth2", "up")
            cleared_fault = wait_for(watch, "fault", change="cleared")["fault"]
            assert {subject for s in cleared_fault["evidence"] for subject in s["about"]} == {
                "p0-t0-0-eth2",
                "p0-t1-0-eth1",
            }

            rig.run("ip", "link", "set", "h1-eth0", "down")
            fault = wait_for(watch, "fault", change="raised")["fault"]
            assert (fault["kind"], fault["location"]) == ("NIC port", "h1 p0-t0-1")
            rig.run("ip", "link", "set", "h1-eth0", "up")
            wait_for(watch, "fault", change="cleared")

            rig.daemon.request("power", name="p0-t1-1", on=False)
            wait_for(watch, "fault", location="p0-t1-1", text="T1 p0-t1-1 (P4Runtime stream lost, all 2 links down)")
            rig.daemon.request("power", name="p0-t1-1", on=True)
            wait_for(watch, "fault", change="cleared", location="p0-t1-1")
        answer = rig.controller.request("faults")
        assert answer["active"] == 0
        assert [f["location"] for f in answer["faults"]] == ["p0-t0-0 p0-t1-0", "h1 p0-t0-1", "p0-t1-1"]
        status = rig.controller.request("status")
        by_reason = {n: s["writes_after_start_by_reason"] for n, s in status["switches"].items()}
        assert by_reason == {n: {"restart": entry_count_of(n)} if n == "p0-t1-1" else {} for n in by_reason}


def with_cables(rig, plan):
    """Interfaces of every link of the plan, in the rig's namespace."""
    for link in plan.links:
        ends = (link.lower.interface, link.upper.interface)
        rig.run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for end in ends:
            rig.run("ip", "link", "set", end, "up")


@pytest.mark.root
def test_spray__a_downlink_cut_prunes_the_other_racks_and_restores_them(tmp_path):
    plan = Plan(planes=1, racks=2, spines=2, hosts_per_rack=1, mode="ecmp")
    with Rig(tmp_path, plan, program="spray", namespace=True) as rig:
        with_cables(rig, plan)
        rig.start_daemon(ports=True)
        rig.start_controller()
        first_reading = rig.controller.request("verify", entries=True)
        with rig.controller.watch() as watch:
            rig.run("ip", "link", "set", "p0-t1-0-eth2", "down")  # T1 0 cannot reach rack 1 any more
            wait_for(watch, "live", switch="p0-t0-0", reason="prune", entries=3)
            second_reading = rig.controller.request("verify", entries=True)
            assert (second_reading["unchanged_since_start"], second_reading["differences"]) == (True, [])
            new_lines = set(second_reading["switches"]["p0-t0-0"]["lines"]) - set(
                first_reading["switches"]["p0-t0-0"]["lines"]
            )
            assert new_lines == {
                "route dst_addr=fd00:0:1::/48 spray(uplink_group=3)",
                "uplink_selector group 3: member 3 weight 1 watch 3",
                "uplinks uplink_group=3 group(3)",
            }
            rig.stop_controller()
            rig.start_controller()  # finds it as it should be
        assert rig.switch("p0-t0-0")["entries_written"] == 0 and rig.switch("p0-t0-0")["live_writes"] == {}
        with rig.controller.watch() as watch:
            rig.run("ip", "link", "set", "p0-t1-0-eth2", "up")
            wait_for(watch, "live", switch="p0-t0-0", reason="restore", entries=3)
        third_reading = rig.controller.request("verify", entries=True)
        assert [s["lines"] for s in third_reading["switches"].values()] == [
            s["lines"] for s in first_reading["switches"].values()
        ]
        assert rig.controller.request("status")["writes_after_start"] == 0


@pytest.mark.root
def test_spray__a_slow_control_plane_takes_its_time_and_keeps_its_word_over_a_restart(tmp_path):
    slow = ("--react-after", "0.4")
    plan = Plan(planes=1, racks=2, spines=2, hosts_per_rack=1, mode="ecmp")
    with Rig(tmp_path, plan, program="spray", namespace=True) as rig:
        with_cables(rig, plan)
        rig.start_daemon(ports=True)
        rig.start_controller(*slow)
        with rig.controller.watch() as watch:
            rig.run("ip", "link", "set", "p0-t1-0-eth2", "down")
            seen_at = wait_for(watch, "port", interface="p0-t1-0-eth2", status="DOWN")["t"]
            assert wait_for(watch, "live", switch="p0-t0-0", reason="prune")["t"] - seen_at >= 0.4
        rig.kill_controller()
        rig.start_controller(*slow)
        assert rig.controller.request("verify")["differences"] == []
        assert rig.switch("p0-t0-0")["live_writes"] == {} and rig.switch("p0-t0-0")["live_entries"] == 3
        rig.stop_controller()
        rig.start_controller("--react-after", "never")  # another network: one that never routes around
        assert rig.switch("p0-t0-0")["live_entries"] == 3


def test_reload__takes_a_swapped_program_up_without_a_write(rig):
    rig.start_controller()
    address = json.loads((rig.run_dir / "switches.json").read_text())["p0-t1-0"]
    old_program = compile_program(source_of("srv6"))
    new_actions = "            forward;\n            NoAction;\n            @defaultonly unknown_usid;"
    old_actions = new_actions.replace("            NoAction;\n", "")
    new_program = compile_program(old_program.config.decode().replace(old_actions, new_actions))
    with SwitchClient("p0-t1-0", address["address"], address["device_id"]) as client:
        reload = client.swap(old_program.p4info, new_program)
    assert (reload.refusals, reload.has_counts) == ((), True)
    own_folder = rig.run_dir / "program" / "p0-t1-0"
    own_folder.mkdir()
    write_program(own_folder, new_program)
    addresses = json.loads((rig.run_dir / "switches.json").read_text())
    addresses["p0-t1-0"]["program"] = "program/p0-t1-0"
    (rig.run_dir / "switches.json").write_text(json.dumps(addresses))
    with rig.controller.watch() as watch:
        assert rig.controller.request("reload") == {"switches": ["p0-t1-0"]}
        wait_for(watch, "switch", switch="p0-t1-0", state="syncing")
        wait_for(watch, "switch", switch="p0-t1-0", state="verified")
    row = rig.switch("p0-t1-0")
    assert (row["pipeline_loads"], row["restarts"], row["writes_after_start"]) == (1, 0, 0)
    assert rig.controller.request("verify")["unchanged_since_start"] is True
    assert rig.controller.request("reload") == {"switches": []}
    # Entries of a switch are read by its own program.
    tables = {name: ["usid_next locator_usid=0xfcbbbb002001 NoAction()"] for name in ("p0-t1-0", "p0-t1-1")}
    mistakes = rig.controller.request("set_tables", tables=tables, dry=True)["mistakes"]
    assert [mistake["switch"] for mistake in mistakes] == ["p0-t1-1"]


def test_reload__of_a_program_without_the_tables_is_refused(running):
    path = running.run_dir / "switches.json"
    text = path.read_text()
    addresses = json.loads(text)
    addresses["p0-t1-0"]["program"] = "program/none"
    path.write_text(json.dumps(addresses))
    try:
        with pytest.raises(JsonlError, match=r"p4info.txtpb is missing"):
            running.controller.request("reload")
    finally:
        path.write_text(text)
    assert running.controller.request("status")["ready"] is True


def test_tables__are_read_replaced_and_put_back(running):
    answer = running.controller.request("tables")
    assert set(answer["tables"]) == {switch.name for switch in PLAN.switches} and answer["unread"] == {}
    lines = answer["tables"]["p0-t1-1"]
    assert running.controller.request("set_tables", tables={"p0-t1-1": lines}) == {
        "mistakes": [],
        "written": {"p0-t1-1": 0},
    }
    routes = [line for line in lines if not line.startswith("usid_next")]
    answer = running.controller.request("set_tables", tables={"p0-t1-1": routes})
    assert answer["written"] == {"p0-t1-1": len(lines) - len(routes)}
    verification = running.controller.request("verify")
    assert verification["unchanged_since_start"] is False and verification["differences"] == []
    running.controller.request("set_tables", tables={"p0-t1-1": lines})
    assert running.controller.request("verify")["unchanged_since_start"] is True


def test_set_tables__with_mistakes_writes_nothing(running):
    route = "usid_next locator_usid=0xfcbbbb002001 forward(port=1)"
    answer = running.controller.request("set_tables", tables={"p0-t1-0": [route, "hello"], "p0-t1-1": []})
    assert [(mistake["switch"], mistake["number"]) for mistake in answer["mistakes"]] == [("p0-t1-0", 1)]
    assert answer["written"] == {} and running.controller.request("verify")["unchanged_since_start"] is True
    assert running.controller.request("set_tables", tables={"p0-t1-1": []}, dry=True)["written"] == {}
    for tables, text in (({"p9-t0-0": []}, "no switch 'p9-t0-0'"), ([], '"tables" must be an object')):
        with pytest.raises(JsonlError, match=text):
            running.controller.request("set_tables", tables=tables)


def test_set_tables__that_a_switch_refuses_leave_it_as_it_was(running):
    lines = running.controller.request("tables")["tables"]["p0-t1-0"]
    crowd = [f"usid_next locator_usid=0x{number:012x} forward(port=1)" for number in range(1, 1030)]
    with pytest.raises(JsonlError, match="a switch that is on"):
        running.controller.request("set_tables", tables={"p0-t1-0": crowd})
    assert running.controller.request("tables")["tables"]["p0-t1-0"] == lines
