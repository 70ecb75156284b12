"""`mrc bench cluster`: what is made of its rounds."""

from tools.bench.cluster import _ratios, table


def a_round(machines, packets_per_s, cpu):
    keys = ("requestor", "responder", "switches")
    return {
        "machines": machines,
        "packets_per_s": packets_per_s,
        "cpu_us_per_packet": dict(zip(keys, cpu, strict=True)),
    }


ROUNDS = [
    a_round("one", 40_000, (10.0, 8.0, 4.0)),
    a_round("several", 30_000, (12.0, 8.0, 8.0)),
    a_round("one", 50_000, (10.0, 8.0, 4.0)),
    a_round("several", 60_000, (14.0, 8.0, 8.0)),
]


def test_ratios__of_medians_several_over_one():
    assert _ratios(ROUNDS) == {"packets_per_s": 1.0, "requestor": 1.3, "responder": 1.0, "switches": 2.0}


def test_table__side_by_side():
    lines = table({"rounds": ROUNDS, "machines": ["a", "b", "c"], "ratios": _ratios(ROUNDS)}).splitlines()
    assert lines[1].split() == ["one", "machine", "45,000", "10.0", "8.0", "4.0"]
    assert lines[2].split() == ["3", "machines", "45,000", "13.0", "8.0", "8.0"]
    assert lines[3].split() == ["ratio", "1.00", "1.30", "1.00", "2.00"]
