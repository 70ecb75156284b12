"""Progress messages of a running campaign."""

import io

from mrc_testbed.simulator.simtest.campaign import CampaignProgress, CampaignReport


def test_campaign__that_did_more_than_was_asked_has_nothing_left():
    out = io.StringIO()
    progress = CampaignProgress(100, every_s=0.0, stream=out)
    for seeds in (0, 25, 160):
        progress(CampaignReport(1, seeds=seeds, wall_s=10.0))
    assert out.getvalue().splitlines() == [
        "simtest: 0 of 100 schedules, 0/s, 0 failed",
        "simtest: 25 of 100 schedules, 2/s, 0 failed, about 30 s left",
        "simtest: 160 of 100 schedules, 16/s, 0 failed, about 0 s left",
    ]
