"""`mrc bench virtual`: small runs in both kinds of process, and what it makes of their figures.

No word about speed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.switch.system.cache_folder import BuildError
from tools.bench import virtual


def run_of(digest: str = "d", cpu_s: float = 2.0, packets: int = 1000) -> dict[str, Any]:
    return {
        "active": True,
        "why": "",
        "packets": packets,
        "events": 9000,
        "queue_depth": 40.0,
        "cpu_s": cpu_s,
        "make_s": 0.1,
        "make_mb": 1.0,
        "peak_mb": 40.0,
        "virtual_s": 0.5,
        "state_digest": digest,
    }


def child_of(run: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    """Return a stand-in of a process: a run in halves takes 0.25 s."""
    return lambda _form, *words: 0.25 if "--halves" in words else run()


def bench(monkeypatch: pytest.MonkeyPatch, compiled_run: dict[str, Any] | None, python: dict[str, Any]) -> Any:
    """Return (result, what was printed) of a bench over 8 and 64 hosts whose runs are given."""

    def child(form: bool, *words: str) -> Any:
        if words == ("--form",):
            return {"active": compiled_run is not None, "why": "not built yet: mrc compile"}
        if "--halves" in words:
            return 0.25
        return compiled_run if form else python

    monkeypatch.setattr(virtual, "_child", child)
    monkeypatch.setattr(virtual, "loop_cpu_s", lambda _events, _depth: 0.01)
    monkeypatch.setattr(virtual, "chase_ns", lambda _megabytes: 123.0)
    monkeypatch.setattr(virtual, "chase_mb", lambda: 24)
    text = io.StringIO()
    return virtual.run([8, 64], 1000, console=Console(file=text, width=200)), text.getvalue()


class TestSizes:
    @pytest.mark.parametrize("hosts, shape", [(8, (4, 2, 2)), (64, (8, 8, 8)), (512, (32, 16, 16)), (7, (7, 2, 1))])
    def test_plan_of__racks_of_16_at_most(self, hosts, shape):
        plan = virtual.plan_of(hosts)
        assert (plan.racks, plan.spines, plan.hosts_per_rack) == shape
        assert len(plan.hosts) == hosts

    @pytest.mark.parametrize("text", ["", "8,", "x", "3", "8,2000", "-8"])
    def test_parse_hosts__refuses(self, text):
        with pytest.raises(UsageError, match="--hosts"):
            virtual.parse_hosts(text)

    def test_parse_hosts__in_order_each_once(self):
        assert virtual.parse_hosts("64,8,64") == [8, 64]

    def test_messages_of__the_same_packets_for_each_size(self):
        assert {n * 16 * virtual.messages_of(n, virtual.PACKETS) for n in virtual.SIZES} == {virtual.PACKETS}
        assert virtual.messages_of(512, 1) == 1


class TestRuns:
    def test_measure__counts_the_packets_of_every_host_and_repeats(self):
        first, second = (virtual.measure(8, 256) for _ in range(2))
        assert first["packets"] == 8 * 2 * virtual.PACKETS_A_MESSAGE
        assert first["events"] > 5 * first["packets"] and first["queue_depth"] > 8
        assert first["state_digest"] == second["state_digest"]

    def test_measure__as_bytes_the_same_counters(self):
        records, wire = virtual.measure(4, 64), virtual.measure(4, 64, wire=True)
        assert (records["events"], records["state_digest"]) == (wire["events"], wire["state_digest"])

    def test_halves__end_as_one_process_does(self):
        assert virtual.halves_wall_s(8, 256) > 0

    def test_permutation_run__a_write_that_fails_is_an_error(self):
        load = virtual.PermutationRun(4, 64, False)
        load.flows[0].memory.write(7, b"of nobody")
        with pytest.raises(RuntimeError, match="did not arrive"):
            load.run()

    @pytest.mark.thorough
    def test_run__in_processes_of_their_own(self):
        runner = CliRunner()
        cli_result = runner.invoke(app, ["bench", "virtual", "--hosts", "4", "--packets", "64", "--profile", "--json"])
        assert cli_result.exit_code == 0, cli_result.output
        result = json.loads(cli_result.stdout)
        (size,) = result["sizes"]
        assert size["python"]["packets"] == 64 and not size["python"]["active"]
        assert size["c_cpu_s"] > 0 or result["c_missing"]
        assert sum(result["profile"]["4"]["parts"].values()) == pytest.approx(1)
        assert result["flatness"] == {"compiled": None, "python": None}

    def test_child__its_error_is_told(self):
        with pytest.raises(RuntimeError, match="give 4 to 1024"):
            virtual._child(False, "--hosts", "3")


class TestVerdicts:
    def test_run__different_states_are_a_failure(self, monkeypatch):
        result, text = bench(monkeypatch, run_of("a"), run_of("b"))
        assert not result["met"] and "DIFFERENT STATES" in text

    def test_run__equal_states(self, monkeypatch):
        result, text = bench(monkeypatch, run_of(cpu_s=0.5), run_of())
        assert result["met"] and [size["faster"] for size in result["sizes"]] == [4.0, 4.0]
        assert "same state in both forms, compiled 4.0 times as fast" in text
        assert "24 MB of memory: 123 to 123 ns; others use the last level" in text

    def test_run__the_cheapest_of_the_compiled_runs_counts(self, monkeypatch):
        costs = iter([0.5, 0.8, 0.6, 0.4])
        monkeypatch.setattr(virtual, "_child", child_of(lambda: run_of(cpu_s=next(costs))))
        chase_times = iter([14.0, 14.5, 40.0, 20.0])
        monkeypatch.setattr(virtual, "chase_ns", lambda _megabytes: next(chase_times))
        sizes = [
            {"compiled": run_of(cpu_s=0.7), "python": run_of(), "hosts": 8, "rounds_cpu_s": [], "halves_wall_s": None}
        ]
        result = {"sizes": sizes, "chase_mb": 24, "chase_ns": []}
        virtual._repeat_compiled(result, 1000, (), Mock())
        assert result["chase_ns"] == [14.0, 14.5, 40.0, 20.0]
        assert "is ours" in virtual._caches(result["chase_ns"])
        assert "but for 2 of 3 rounds" in virtual._caches([14.0, 90.0, 20.0])
        assert sizes[0]["rounds_cpu_s"] == [0.7, 0.5, 0.8, 0.6, 0.4]
        assert virtual.compare(sizes[0])["faster"] == pytest.approx(5.0)

    @pytest.mark.parametrize(
        ("chase_times", "rounds"), [([90.0, 14.0, 41.0, 20.0, 14.0, 80.0, 15.0], 8), ([90.0] * 19, 20)]
    )
    def test_run__while_others_use_the_caches_more_compiled_runs_are_made(self, monkeypatch, chase_times, rounds):
        monkeypatch.setattr(virtual, "_child", child_of(run_of))
        times = iter(chase_times)
        monkeypatch.setattr(virtual, "chase_ns", lambda _megabytes: next(times))
        sizes = [
            {"compiled": run_of(), "python": run_of(), "hosts": hosts, "rounds_cpu_s": [], "halves_wall_s": None}
            for hosts in (8, 64)
        ]
        result = {"sizes": sizes, "chase_mb": 24, "chase_ns": []}
        virtual._repeat_compiled(result, 1000, (), Mock())
        assert result["chase_ns"] == chase_times and [len(size["rounds_cpu_s"]) for size in sizes] == [rounds, rounds]

    def test_run__compiled_runs_that_differ_are_an_error(self, monkeypatch):
        monkeypatch.setattr(virtual, "_child", lambda _form, *_words: run_of("b"))
        sizes = [
            {"compiled": run_of("a"), "python": run_of("a"), "hosts": 8, "rounds_cpu_s": [], "halves_wall_s": None}
        ]
        with pytest.raises(RuntimeError, match="two runs with 8 hosts"):
            virtual._repeat_compiled({"sizes": sizes, "chase_mb": None, "chase_ns": []}, 1000, (), Mock())

    def test_run__without_the_compiled_form(self, monkeypatch):
        result, text = bench(monkeypatch, None, run_of())
        assert result["met"] and result["sizes"][0]["compiled"] is None
        assert "no compiled column: not built yet: mrc compile" in text

    def test_run__without_gcc(self, monkeypatch):
        def loop(_events: int, _depth: float) -> float:
            raise BuildError("no gcc")

        monkeypatch.setattr(virtual, "_child", lambda *words: run_of() | {"active": False})
        monkeypatch.setattr(virtual, "loop_cpu_s", loop)
        text = io.StringIO()
        result = virtual.run([8], 1000, console=Console(file=text, width=200))
        assert result["c_missing"] == "no gcc" and "no bare loop in C: no gcc" in text.getvalue()

    def test_flatness__by_packet(self):
        sizes = [{"python": run_of(cpu_s=2.0)}, {"python": run_of(cpu_s=6.0, packets=2000)}]
        assert virtual.flatness(sizes, "python") == pytest.approx(1.5)


class TestLoop:
    def test_loop__takes_time(self):
        assert virtual.loop_cpu_s(10_000, 12.4) > 0

    def test_loop__no_event_is_an_error(self):
        with pytest.raises(RuntimeError, match="usage"):
            virtual.loop_cpu_s(0, 1)


class TestShares:
    def test_part_of(self):
        root = PACKAGE
        cases = {
            f"{root}/hosts/engine/wire/codec.py": "wire codec",
            f"{root}/hosts/engine/qp.py": "engine",
            f"{root}/simulator/ports.py": "ports",
            f"{root}/simulator/host.py": "hosts",
            "/usr/lib/random.py": "other",
        }
        assert {file: virtual.part_of((file, 1, "f")) for file in cases} == cases
        assert virtual.part_of((f"{root}/simulator/fabric.py", 1, "_run")) == "event queue"
        assert virtual.part_of(("~", 0, "<built-in method _heapq.heappop>")) == "event queue"

    def test_shares__a_built_in_belongs_to_its_callers(self):
        port = (f"{PACKAGE}/simulator/ports.py", 1, "send")
        engine = (f"{PACKAGE}/hosts/engine/qp.py", 1, "send")
        stats = {
            port: (1, 1, 2.0, 3.0, {}),
            engine: (1, 1, 1.0, 2.0, {}),
            ("~", 0, "len"): (4, 4, 1.0, 1.0, {port: (3, 3, 0.75, 0.75), engine: (1, 1, 0.25, 0.25)}),
        }
        assert virtual.shares(stats) == {"ports": 2.75 / 4, "engine": 1.25 / 4}

    def test_chase__takes_time(self):
        assert 0 < virtual.chase_ns(1) < 100_000

    def test_chase__is_three_quarters_of_the_last_level(self, tmp_path):
        assert virtual.chase_mb(tmp_path) is None, "nothing is told"
        for number, (level, size) in enumerate((("1", "48K"), ("1", "32K"), ("3", "32768K"), ("2", "1024K"))):
            cache = tmp_path / f"index{number}"
            cache.mkdir()
            (cache / "level").write_text(f"{level}\n")
            (cache / "size").write_text(f"{size}\n")
        assert virtual.chase_mb(tmp_path) == 24
        (tmp_path / "index0" / "size").write_text("some\n")
        assert virtual.chase_mb(tmp_path) is None
