"""README's moving picture, made of a real run: a link is cut under load and returns.

    sudo .venv/bin/mrc run tools/manual/cut_under_load.yaml --out results/cut
    .venv/bin/python -m tools.manual.moving_picture results/cut     # records docs/figures/cut-under-load.json
    .venv/bin/python -m tools.manual.moving_picture                 # draws docs/figures/cut-under-load.svg of it

The picture has all its motion in CSS, so that it moves as an image in a page. Who asks for less motion gets the whole
run at once. The run's clock is slower around the cut (PACE).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "cut-under-load"
"""The figure's files, without suffix."""
WIDTH, HEIGHT = 880, 420
INK, SOFT, LINE, BLUE, RED, GREEN, ORANGE = (
    "#1d2734",
    "#5d6978",
    "#d5dae1",
    "#0072B2",
    "#c62828",
    "#1b7f3b",
    "#E69F00",
)
BEFORE_S, AFTER_S = 0.6, 0.5
"""Parts of the run before the cut and after the path's return that are shown, seconds."""
PACE = (4.0, 6.0, 3.5, 4.0, 3.0)
"""Seconds of each part: before the cut, past the bypass, to the repair, to the end, standing still."""
BYPASS_VIEW_S = 0.12
"""Part of the run behind the cut that is shown slowly, seconds."""
RESENT_S = 0.06
"""Time behind the withdrawal in which resent packets are drawn, seconds."""
FABRIC_X = {"h0": 34, "t0": 128, "t1": 252, "t0'": 376, "h1": 470}
"""Columns of the fabric."""
PLANE_Y, PLANE_HIGH, T1_APART = 106, 76, 17
"""First plane's middle, distance of planes, distance of a plane's T1s from its middle."""
PLOT_X, PLOT_WIDE = 610, 250
STRIP_Y, STRIP_HIGH = 84, 24
GOODPUT_Y, GOODPUT_HIGH = 300, 74
Point = tuple[float, float]


# ---- the run ----------------------------------------------------------------------------------------------------


def record(results: Path) -> dict[str, Any]:
    """Return the recorded figures of a run: goodput, packets by EV, and the times of what happened."""
    run = json.loads((results / "runs" / "run.json").read_text())
    manifest = json.loads((results / "manifest.json").read_text())
    series = run["series"]
    (goodput_bps,), (packets,) = series["received_bps"].values(), series["ev_packets"].values()
    faults = [event for event in run["events"] if event["what"] == "fault"]
    moves = [event for event in run["events"] if event["what"] == "ev"]
    evs = sorted({ev for interval in packets for ev in interval})
    return {
        "made_by": manifest["command"],
        "began": manifest["began"],
        "commit": manifest["machine"]["commit"],
        "where": run["where"],
        "link": faults[0]["text"].removeprefix("cut "),
        "ev": f"{moves[0]['ev']:#06x}",
        "cut_s": faults[0]["t"],
        "withdrawn_s": moves[0]["t"],
        "restored_s": faults[1]["t"],
        "good_s": moves[-1]["t"],
        "lost": sum(series["lost"]),
        "retransmitted": sum(series["retransmitted"]),
        "times_s": [round(t, 4) for t in series["times_s"]],
        "goodput_bps": [round(bps) for bps in goodput_bps],
        "packets": {ev: [interval.get(ev, 0) for interval in packets] for ev in evs},
    }


# ---- time ---------------------------------------------------------------------------------------------------------


class PictureClock:
    """Time of the picture, in percent of its loop, for each time of the run."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.start_s: float = data["cut_s"] - BEFORE_S
        self.end_s: float = data["good_s"] + AFTER_S
        run_s: list[float] = [
            self.start_s,
            data["cut_s"],
            data["cut_s"] + BYPASS_VIEW_S,
            data["restored_s"],
            self.end_s,
        ]
        self.loop_s = sum(PACE)
        shown_s = [0.0, *itertools.accumulate(PACE[:-1])]
        self.knots = [(time_s, 100 * loop_s / self.loop_s) for time_s, loop_s in zip(run_s, shown_s, strict=True)]

    def percent(self, time_s: float) -> float:
        for (low, low_percent), (high, high_percent) in itertools.pairwise(self.knots):
            if time_s <= high:
                return low_percent + (high_percent - low_percent) * max(0.0, time_s - low) / (high - low)
        return self.knots[-1][1]

    def x(self, time_s: float) -> float:
        """Place of a time on the axis of the plots."""
        return PLOT_X + PLOT_WIDE * (min(max(time_s, self.start_s), self.end_s) - self.start_s) / (
            self.end_s - self.start_s
        )


def _keyframes(name: str, spans: Sequence[tuple[float, float]]) -> str:
    """Return keyframes of an element that is visible in spans of percent."""
    frames = ["0%{opacity:0}"] if not spans or spans[0][0] > 0 else []
    for low, high in spans:
        frames.append(f"{low:.2f}%{{opacity:1}}")
        if high < 100:
            frames.append(f"{high:.2f}%{{opacity:0}}")
    return f"@keyframes {name}{{{''.join(frames)}}}"


# ---- drawing ------------------------------------------------------------------------------------------------------


def picture(data: dict[str, Any]) -> str:
    """Return the SVG of a recorded run."""
    clock = PictureClock(data)
    cut, withdrawn = clock.percent(data["cut_s"]), clock.percent(data["withdrawn_s"])
    repair, recovery = clock.percent(data["restored_s"]), clock.percent(data["good_s"])
    resent = clock.percent(data["withdrawn_s"] + RESENT_S)
    captions = [
        (0.0, cut, INK, f"h0 sprays one transfer over {len(data['packets'])} paths of four planes, packet by packet"),
        (cut, withdrawn, RED, f"{data['link'].replace(' ', ' – ')} is cut: packets on it are lost without trace"),
        (withdrawn, clock.knots[2][1], BLUE, _bypass_text(data)),
        (
            clock.knots[2][1],
            repair,
            INK,
            f"The other {len(data['packets']) - 1} carry it on. {_goodput_text(data)}",
        ),
        (repair, recovery, INK, "The link is repaired; probes ask whether the path works again"),
        (recovery, 100.0, GREEN, f"{data['good_s'] - data['restored_s']:.2f} s later enough were answered: it is back"),
    ]
    rules = [
        f"text{{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:{INK}}}",
        f".k{{animation-duration:{clock.loop_s:g}s;animation-iteration-count:infinite;animation-timing-function:step-end}}",
        ".go{animation:go .9s linear infinite}@keyframes go{to{stroke-dashoffset:-36}}",
        ".slow{animation:slow 1.8s linear infinite}@keyframes slow{to{stroke-dashoffset:-72}}",
        _keyframes("bad", [(cut, repair)]),
        _keyframes("sent", [(0, cut), (recovery, 100)]),
        _keyframes("lost", [(cut, withdrawn)]),
        _keyframes("probes", [(withdrawn, repair)]),
        _keyframes("answered", [(repair, recovery)]),
        _keyframes("resent", [(withdrawn, resent)]),
        "@keyframes cover{"
        + "".join(
            f"{percent:.2f}%{{transform:translateX({clock.x(time_s) - PLOT_X:.1f}px)}}"
            for time_s, percent in clock.knots
        )
        + f"100%{{transform:translateX({PLOT_WIDE}px)}}}}",
        *(_keyframes(f"c{number}", [(low, high)]) for number, (low, high, _, _) in enumerate(captions)),
        # Without motion the whole run is there at once, with the last caption.
        ".once,.cover{opacity:0}",
        "@media (prefers-reduced-motion:no-preference){"
        f".cover{{opacity:1;animation:cover {clock.loop_s:g}s linear infinite}}}}",
        "@media (prefers-reduced-motion:reduce){.k,.go,.slow{animation:none}}",
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(_summary(data))}</title>",
        f"<style>{''.join(rules)}</style>",
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="#fff" stroke="{LINE}"/>',
    ]
    for number, (_, high, colour, text) in enumerate(captions):
        css_class = "k" if high == 100.0 else "k once"
        parts.append(
            f'<text x="24" y="38" font-size="17" font-weight="600" class="{css_class}" '
            f'style="fill:{colour};animation-name:c{number}">{escape(text)}</text>'
        )
    parts += [*_fabric(data), *_plots(data, clock)]
    backend_text = "on live P4 switches" if data["where"] == "live" else "in virtual time"
    parts.append(_text(24, HEIGHT - 14, f"A run {backend_text}, slowed down around the cut", size=11, colour=SOFT))
    return "\n".join(parts) + "\n</svg>\n"


def _bypass_text(data: dict[str, Any]) -> str:
    milliseconds = 1e3 * (data["withdrawn_s"] - data["cut_s"])
    return f"{milliseconds:.0f} ms later the path is out, and {data['retransmitted']} lost packets go again on others"


def _goodput_text(data: dict[str, Any]) -> str:
    before_bps, since_bps = _goodput(data, 0.0, data["cut_s"]), _goodput(data, data["cut_s"], data["restored_s"])
    return f"Goodput: {before_bps / 1e6:.1f} Mb/s before, {since_bps / 1e6:.1f} Mb/s since"


def _goodput(data: dict[str, Any], low: float, high: float) -> float:
    """Return the mean goodput of a part of the run, bits/s."""
    edges = zip([0.0, *data["times_s"][:-1]], data["times_s"], data["goodput_bps"], strict=True)
    parts = [(stop - start, bps) for start, stop, bps in edges if low <= start and stop <= high]
    return float(sum(span * bps for span, bps in parts) / sum(span for span, _ in parts))


def _summary(data: dict[str, Any]) -> str:
    return f"{data['link']} is cut under load. {_bypass_text(data)}. {_goodput_text(data)}."


def _text(x: float, y: float, text: str, size: float = 11, colour: str = INK, anchor: str = "start") -> str:
    attributes = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" style="fill:{colour}"'
    return f"<text {attributes}>{escape(text)}</text>"


# ---- the fabric ---------------------------------------------------------------------------------------------------


def _path(ev: str) -> list[Point]:
    """Return the corners of a path: h0, T0, T1, T0, h1."""
    plane, uplink = divmod(int(ev, 16), 256)
    y = PLANE_Y + PLANE_HIGH * plane
    middle = PLANE_Y + PLANE_HIGH * 1.5
    t1_y = y + T1_APART * (2 * uplink - 1)
    ys = (middle, y, t1_y, y, middle)
    return list(zip(FABRIC_X.values(), map(float, ys), strict=True))


def _line(points: Sequence[Point], attributes: str) -> str:
    corners = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{corners}" fill="none" {attributes}/>'


def _fabric(data: dict[str, Any]) -> list[str]:
    """Return the fabric with the packets on each path; those of the cut path depend on the time."""
    cut_ev = data["ev"]
    dots = 'stroke-width="4.5" stroke-linecap="round" stroke-dasharray=".1 17.9"'
    rare_dots = 'stroke-width="4.5" stroke-linecap="round" stroke-dasharray=".1 71.9"'
    out = [_line(_path(ev), f'stroke="{LINE}" stroke-width="1.6"') for ev in data["packets"]]
    path = _path(cut_ev)
    (x1, y1), (x2, y2) = path[1], path[2]
    half = ((x1 + x2) / 2, (y1 + y2) / 2)
    until_cut = [*path[:2], half]
    # Resent packets are drawn on all other paths: the record says how many they were, not where each went.
    for ev in data["packets"]:
        if ev != cut_ev:
            out.append(_line(_path(ev), f'stroke="{BLUE}" {dots} class="go"'))
            out.append(_timed_group("resent", _line(_path(ev), f'stroke="{ORANGE}" {rare_dots} class="go"')))
    out += [
        _timed_group(
            "bad",
            _line(path[1:3], 'stroke="#fff" stroke-width="4"')
            + _line(path[1:3], f'stroke="{RED}" stroke-width="2" stroke-dasharray="3 4"'),
        ),
        _timed_group("sent", _line(path, f'stroke="{BLUE}" {dots} class="go"'), always=True),
        _timed_group("lost", _line(until_cut, f'stroke="{RED}" {dots} class="go"')),
        _timed_group("probes", _line(until_cut, f'stroke="{SOFT}" {rare_dots} class="slow"')),
        _timed_group("answered", _line(path, f'stroke="{GREEN}" {rare_dots} class="slow"')),
        _timed_group(
            "bad", f'<path d="M{half[0] - 6:g} {half[1] - 6:g}l12 12m0-12l-12 12" stroke="{RED}" stroke-width="3"/>'
        ),
    ]
    for plane in sorted({int(ev, 16) >> 8 for ev in data["packets"]}):
        y = PLANE_Y + PLANE_HIGH * plane
        out += [_node(FABRIC_X["t0"], y, "T0"), _node(FABRIC_X["t0'"], y, "T0")]
        out += [_node(FABRIC_X["t1"], y + T1_APART * way, "T1") for way in (-1, 1)]
        out.append(_text(FABRIC_X["t1"], y - 32, f"plane {plane}", size=10, colour=SOFT, anchor="middle"))
    out += [_node(FABRIC_X[host], PLANE_Y + PLANE_HIGH * 1.5, host, host=True) for host in ("h0", "h1")]
    return out


def _timed_group(name: str, content: str, always: bool = False) -> str:
    """Return content that is visible as the keyframes `name` say; without motion only if `always`."""
    return f'<g class="k{"" if always else " once"}" style="animation-name:{name}">{content}</g>'


def _node(x: float, y: float, name: str, host: bool = False) -> str:
    width, height = (34, 26) if host else (26, 17)
    attributes = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}"'
    return f'<rect {attributes} rx="3" fill="#fff" stroke="{SOFT}"/>' + _text(
        x, y + (4.5 if host else 3.5), name, size=13 if host else 10, anchor="middle"
    )


# ---- the curves ---------------------------------------------------------------------------------------------------


def _plots(data: dict[str, Any], clock: PictureClock) -> list[str]:
    """Return packets of each path and the goodput over time, under a cover that moves away with the clock."""
    times_s = data["times_s"]
    spans_s = [stop - start for start, stop in zip([0.0, *times_s[:-1]], times_s, strict=True)]
    rates = {
        ev: [count / span for count, span in zip(counts, spans_s, strict=True)]
        for ev, counts in data["packets"].items()
    }
    peak_rate = max(rate for values in rates.values() for rate in values)
    out = [_text(PLOT_X, STRIP_Y - 12, "packets a second on each path", size=12)]
    for number, (ev, values) in enumerate(rates.items()):
        bottom = STRIP_Y + STRIP_HIGH * (number + 1) - 4
        colour = RED if ev == data["ev"] else SOFT
        out.append(_text(PLOT_X - 8, bottom - 4, f"plane {int(ev, 16) >> 8}, EV {ev}", 10.5, colour, "end"))
        if ev == data["ev"]:
            left_x, right_x = clock.x(data["cut_s"]), clock.x(data["good_s"])
            size = f'width="{right_x - left_x:.1f}" height="{STRIP_HIGH - 4}"'
            place_text = f'x="{left_x:.1f}" y="{bottom - STRIP_HIGH + 4}"'
            out.append(f'<rect {place_text} {size} fill="{RED}" opacity=".13"/>')
        out.append(_area(times_s, values, clock, bottom, (STRIP_HIGH - 5) / peak_rate))
    before_bps = _goodput(data, 0.0, data["cut_s"])
    bottom, top_bps = GOODPUT_Y + GOODPUT_HIGH, 1.25 * before_bps
    out += [
        _text(PLOT_X - 8, bottom + 3, "0", size=10.5, colour=SOFT, anchor="end"),
        _text(
            PLOT_X - 8,
            bottom - GOODPUT_HIGH / 1.25 + 3,
            f"{before_bps / 1e6:.0f} Mb/s",
            size=10.5,
            colour=SOFT,
            anchor="end",
        ),
        _area(times_s, data["goodput_bps"], clock, bottom, GOODPUT_HIGH / top_bps),
    ]
    for key, colour, text in (("cut_s", RED, "cut"), ("restored_s", GREEN, "repaired")):
        x = clock.x(data[key])
        out.append(f'<path d="M{x:.1f} {STRIP_Y - 4}V{bottom}" stroke="{colour}" stroke-dasharray="3 3"/>')
        out.append(_text(x, bottom + 14, text, size=10.5, colour=colour, anchor="middle"))
    out.append(
        _text(
            PLOT_X + PLOT_WIDE,
            bottom + 14,
            f"{clock.end_s - clock.start_s:.1f} s",
            size=10.5,
            colour=SOFT,
            anchor="end",
        )
    )
    out.append(f'<path d="M{PLOT_X} {bottom}h{PLOT_WIDE}" stroke="{SOFT}"/>')
    # The cover is wider than the plots: it must not end inside them while it moves to the right.
    high = bottom - STRIP_Y + 6
    out.append(
        f'<svg x="{PLOT_X}" y="{STRIP_Y - 6}" width="{PLOT_WIDE + 2}" height="{high}"><g class="cover">'
        f'<rect width="{PLOT_WIDE + 2}" height="{high}" fill="#fff"/>'
        f'<path d="M0 0V{high}" stroke="{INK}" stroke-width="2"/></g></svg>'
    )
    return [*out, _text(PLOT_X, GOODPUT_Y + 3, "goodput", size=12)]


def _area(
    times_s: Sequence[float], values: Sequence[float], clock: PictureClock, bottom: float, unit_high: float
) -> str:
    """Return the area below values over time, each over its interval; a value of 1 is `unit_high` high."""
    edges = zip([0.0, *times_s[:-1]], times_s, values, strict=True)
    steps = [(clock.x(start), clock.x(stop), value) for start, stop, value in edges]
    corners = "".join(
        f"V{bottom - unit_high * value:.1f}H{stop_x:.1f}" for start_x, stop_x, value in steps if stop_x > start_x
    )
    return f'<path d="M{PLOT_X} {bottom}{corners}V{bottom}z" fill="{BLUE}" opacity=".75"/>'


def main(arguments: Sequence[str]) -> None:
    """Record a run if its results are given; draw the recorded one."""
    if arguments:
        FIGURE.with_suffix(".json").write_text(json.dumps(record(Path(arguments[0]))) + "\n")
    FIGURE.with_suffix(".svg").write_text(picture(json.loads(FIGURE.with_suffix(".json").read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
