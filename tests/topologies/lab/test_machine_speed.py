"""Machine's speed, limits of its cgroups, and the slowdown that follows."""

import os

import pytest

from mrc_testbed.topologies.lab import machine_speed
from mrc_testbed.topologies.lab.machine_speed import REFERENCE, REFERENCE_S, MachineCapacity, allowed_cpus, measure

ALL_CPUS = float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("cpus", "times", "slowdown"),
    [
        (2, 1, 1),
        (2, 4, 1),  # the usual rates at full load: still the usual ones
        (1, 2, 1),
        (2, 4.1, 5),
        (0.1, 1, 20),  # a tenth of a CPU
        (0.05, 1, 50),
        (2, 30, 50),  # emulated
        (1, 1000, 100),  # never slower than that
    ],
)
def test_slowdown__by_cpus_and_their_speed(cpus, times, slowdown):
    assert MachineCapacity(cpus, times * REFERENCE_S).slowdown == slowdown


def test_speed__in_words():
    assert str(REFERENCE) == "2 CPUs" and str(MachineCapacity(1, REFERENCE_S)) == "1 CPU"
    slow = MachineCapacity(0.1, 3 * REFERENCE_S)
    assert slow.note("links of 200 kb/s", "--rate") == (
        "slow machine (0.1 CPUs, each 3 times slower than the reference): links of 200 kb/s, at 1:50 of the usual "
        "(--rate: other values)"
    )


def test_measure__counts_cpu_time_not_wall_time(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(machine_speed.time, "thread_time", lambda: next(clock) * 0.004)
    assert measure(0.01).packet_s == pytest.approx(0.006)  # 12 ms for 2 packets


def cgroups(folder, files, own_groups):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "own").write_text(own_groups)
    return allowed_cpus(folder, folder / "own")


@pytest.mark.parametrize(
    ("files", "own_groups", "cpus"),
    [
        ({}, "0::/\n", ALL_CPUS),
        ({"a/cpu.max": "max 100000\n"}, "0::/a\n", ALL_CPUS),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "10000 100000\n"}, "0::/a/b\n", 0.1),
        ({"cpu.max": "5000 100000\n"}, "0::/of/the/host/alone\n", 0.05),
        ({"cpu/a/cpu.cfs_quota_us": "1000\n", "cpu/a/cpu.cfs_period_us": "20000\n"}, "1:cpu:/a\n0::/\n", 0.05),
        (
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/a/cpu.cfs_period_us": "1\n"},
            "4:cpu,cpuacct:/a\n",
            ALL_CPUS,
        ),
        ({"cpu.max": "nonsense\n"}, "0::/\n", ALL_CPUS),
        ({"cpu.max": "900000 100\n"}, "0::/\n", ALL_CPUS),
    ],
)
def test_allowed_cpus__limits_of_cgroups(tmp_path, files, own_groups, cpus):
    assert cgroups(tmp_path, files, own_groups) == pytest.approx(cpus)


def test_allowed_cpus__without_cgroups(tmp_path):
    assert allowed_cpus(tmp_path, tmp_path / "none") == ALL_CPUS
