"""The start of a job in the fluid model: EVs over dead links, one by one, against counts made by hand."""

import numpy as np
import pytest

from simulator.fluid.job_start import (
    ABSENT,
    BACKUP,
    BAD,
    CALIBRATION,
    DENIED,
    ROTATION,
    FabricShape,
    Flows,
    JobStart,
    start_job,
)

SHAPE = FabricShape(
    planes=2, racks=2, spines=4, hosts_per_rack=1, rate_bps=8e6, rtt_s=0.01, frame_bytes=1000, payload_bytes=800
)
"""1,000 packets a second and plane; three EVs in rotation and one backup."""
EDGES = np.linspace(0.0, 1.0, 11)


def links(*dead: tuple[int, int, int]) -> np.ndarray:
    """All alive but those."""
    alive = np.ones((SHAPE.planes, SHAPE.racks, SHAPE.spines), bool)
    for place in dead:
        alive[place] = False
    return alive


def started(alive: np.ndarray, *, denied: bool = False, starts: tuple[float, float] = (0.0, 0.0)) -> JobStart:
    flows = Flows(np.array([0, 1]), np.array([1, 0]), np.array(starts))
    return start_job(SHAPE, alive, flows, EDGES, seed=3, denied=denied, calibration=CALIBRATION)


def test_start__nothing_dead_nothing_lost():
    result = started(links())
    assert result.lost.tolist() == [0, 0]
    assert [result.count(state) for state in (ROTATION, BACKUP, BAD, DENIED, ABSENT)] == [12, 4, 0, 0, 0]
    assert result.rate_bps == pytest.approx(2 * 6.4e6 * CALIBRATION.efficiency)


def test_start__dead_uplink_costs_both_directions():
    """A silent link swallows both ways: of both flows one EV goes, unless it was the backup and never used."""
    result = started(links((1, 0, 2)))
    bad_of_flow = (result.states == BAD).sum(axis=1)
    assert set(bad_of_flow) <= {0, 1}
    per_ev = 1000 / 3 * CALIBRATION.lost_rtts * SHAPE.rtt_s
    assert result.lost == pytest.approx(bad_of_flow * per_ev)
    assert result.lost_series.sum() == pytest.approx(result.lost.sum())


def test_start__dead_plane_runs_out_of_backups():
    """All four EVs of the plane are retired, the backup by a second wave; the other plane goes on."""
    result = started(links(*((0, 1, spine) for spine in range(4))))
    assert (result.states[:, :4] == BAD).all()
    assert (result.states[:, 4:] != BAD).all()
    assert len(result.retired_s) == 8
    detection = CALIBRATION.detection_rtts * SHAPE.rtt_s
    assert (np.sort(result.retired_s)[-2:] >= 2 * detection).all()
    assert result.rate_bps == pytest.approx(6.4e6 * CALIBRATION.efficiency)


def test_start__denied_evs_lose_nothing():
    result = started(links((0, 0, 0), (0, 0, 1)), denied=True)
    assert result.lost.tolist() == [0, 0]
    assert result.count(DENIED) == 4
    assert ((result.states[:, :4] == ROTATION).sum(axis=1) == 2).all()


def test_start__staggered_hosts_lose_when_they_start():
    result = started(links(*((0, 1, spine) for spine in range(4))), starts=(0.0, 0.5))
    assert result.lost_series[:5].sum() == pytest.approx(result.lost[0])
    assert result.lost_series[5:].sum() == pytest.approx(result.lost[1])


def test_start__inside_a_rack_links_do_not_matter():
    shape = FabricShape(
        planes=2, racks=1, spines=4, hosts_per_rack=2, rate_bps=8e6, rtt_s=0.01, frame_bytes=1000, payload_bytes=800
    )
    flows = Flows(np.array([0, 1]), np.array([1, 0]), np.zeros(2))
    result = start_job(shape, np.zeros((2, 1, 4), bool), flows, EDGES, seed=1, denied=False, calibration=CALIBRATION)
    assert result.lost.tolist() == [0, 0]
    assert result.count(ROTATION) == 4


def test_start__refuses_links_of_another_fabric():
    with pytest.raises(ValueError, match="planes, racks, spines"):
        started(np.ones((1, 2, 4), bool))
