"""What `mrc doctor` says of a machine's speed: the figures, and rates and delays that it carries."""

import pytest

from mrc_testbed.doctor.speed import check_of, endpoint_packets_per_s, python_start_s
from mrc_testbed.topologies.lab.machine_speed import REFERENCE, REFERENCE_S, MachineSpeed


def test_check_of__a_usual_machine_carries_the_usual_rates():
    check = check_of(REFERENCE, 35_148.2, 0.054)
    assert check.ok and not check.needed
    assert check.found == (
        "2 CPUs; an endpoint handles 35,148 packets/s, Python starts in 54 ms: carries links of 10 Mb/s with a base "
        "RTT of 10 ms"
    )


def test_check_of__a_slow_machine_is_a_note_with_its_figures():
    check = check_of(MachineSpeed(2.0, 30 * REFERENCE_S), 700.0, 22.0)
    assert not check.ok and not check.needed and "by themselves" in check.cure
    assert "2 CPUs, each 30 times slower than the reference" in check.found
    assert check.found.endswith("carries links of 200 kb/s with a base RTT of 500 ms")
    assert check.figures == {
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
