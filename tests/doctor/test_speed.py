"""Report of `mrc doctor` about a machine's speed: its figures, and rates and delays that it carries."""

import pytest

from mrc_testbed.doctor.speed import SpeedReport, endpoint_packets_per_s, python_start_s
from mrc_testbed.topologies.lab.machine_speed import REFERENCE, REFERENCE_S, MachineCapacity


def test_report__a_usual_machine_carries_the_usual_rates():
    report = SpeedReport(REFERENCE, 35_148.2, 0.054)
    assert str(report) == (
        "2 CPUs; an endpoint handles 35,148 packets/s, Python starts in 54 ms: carries links of 10 Mb/s with a base "
        "RTT of 10 ms"
    )


def test_report__a_slow_machine_with_its_figures():
    report = SpeedReport(MachineCapacity(2.0, 30 * REFERENCE_S), 700.0, 22.0)
    assert str(report).startswith("2 CPUs, each 30 times slower than the reference; an endpoint")
    assert str(report).endswith("carries links of 200 kb/s with a base RTT of 500 ms")
    assert report.to_json() == {
        "cpus": 2.0,
        "reference_cpus": pytest.approx(0.0667),
        "slowdown": 50,
        "endpoint_packets_per_s": 700,
        "python_start_s": 22.0,
        "link_rate_bps": 200e3,
        "base_rtt_s": 0.5,
    }


def test_measurements__are_of_this_machine():
    assert endpoint_packets_per_s(0.01) > 0 and python_start_s() > 0
