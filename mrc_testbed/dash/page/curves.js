// Curves over time: a chart by uPlot for each group of lines, made when its lines are new and fed with values since.
// Dragging zooms all charts, a double click shows everything again, the cursor of one is the cursor of all.
"use strict";

const COLOURS = ["--busy", "--good", "--warn", "--full", "--path", "--bad", "--soft", "--extra"];
const CHART_HEIGHT = 150; // pixels
const MARKED = {made: "--bad", fault: "--full", healed: "--good", undone: "--good"};
const CLICK_PX = 4; // the mouse may move that far in a click that picks a time

class Curves {
  // parent: element; clock: times are seconds since 1970, not of a run; pick(seconds): a time was clicked
  constructor(parent, {clock, pick, marks}) {
    Object.assign(this, {parent, clock, pick, marks: marks || [], at: null, charts: new Map(), zoomed: false});
    this.widths = new ResizeObserver((entries) => entries.forEach(({target}) => {
      const chart = [...this.charts.values()].find((one) => one.place === target);
      if (chart && target.clientWidth) chart.plot.setSize({width: target.clientWidth, height: CHART_HEIGHT});
    }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.clear(); this.again?.(); });
  }

  // charts: [title, unit, [[label, values], ...]]; times: seconds; remark: text behind each title
  show(charts, times, remark) {
    if (typeof uPlot === "undefined") {
      if (!this.parent.firstChild) make("p", {class: "hint", text: uPlotMissing}, this.parent);
      return;
    }
    this.again = () => this.show(charts, times, remark);
    const wanted = charts.filter(([, , lines]) => lines.length);
    const keys = wanted.map(([title, , lines]) => [title, ...lines.map(([label]) => label)].join("\n"));
    for (const key of this.charts.keys()) if (!keys.includes(key)) this.remove(key);
    wanted.forEach(([title, unit, lines], nth) => {
      const chart = this.charts.get(keys[nth]) || this.add(keys[nth], unit, lines.map(([label]) => label));
      if (this.parent.children[nth] !== chart.figure) this.parent.insertBefore(chart.figure, this.parent.children[nth]);
      this.feed(chart, [times, ...lines.map(([, values]) => values)]);
      const most = Math.max(...lines.map(([, values]) => values.reduce((a, b) => Math.max(a, b ?? 0), 0)));
      chart.caption.textContent = `${title}, ${most ? `up to ${amount(most, unit)}` : "none"}${remark}`;
      const now = lines.map(([label, values]) => `${label} ${amount(values[values.length - 1], unit)}`);
      chart.place.setAttribute("aria-label", `${title}; at the end: ${now.join(", ")}`);
    });
  }

  // Draw the line of the time that is shown, seconds.
  moveTo(at) {
    this.at = at;
    for (const {plot} of this.charts.values()) {
      plot.redraw(false, false);
      this.tell(plot, plot.valToIdx(at));
    }
  }

  clear() {
    for (const key of [...this.charts.keys()]) this.remove(key);
  }

  remove(key) {
    const {plot, figure, place} = this.charts.get(key);
    this.widths.unobserve(place);
    plot.destroy();
    figure.remove();
    this.charts.delete(key);
  }

  feed({plot}, data) {
    plot.setData(data, !this.zoomed);
    if (this.zoomed) plot.setScale("x", {min: plot.scales.x.min, max: plot.scales.x.max});
    this.tell(plot, this.at === null ? data[0].length - 1 : plot.valToIdx(this.at));
  }

  // Values of one moment in the legend, unless the mouse is on a chart and asks for another.
  tell(plot, idx) {
    if (!(plot.cursor.left >= 0)) plot.setLegend({idx}, false);
  }

  add(key, unit, labels) {
    const figure = make("figure", {});
    const caption = make("figcaption", {}, figure);
    const place = make("div", {class: "chart", role: "img"}, figure);
    this.parent.append(figure);
    const plot = new uPlot(this.options(unit, labels, place.clientWidth || 300), [[], ...labels.map(() => [])], place);
    let pressed = null;
    plot.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    plot.over.addEventListener("mouseup", (event) => {
      const still = pressed !== null && Math.abs(event.clientX - pressed) < CLICK_PX;
      if (still && this.pick) this.pick(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x"));
    });
    plot.over.addEventListener("dblclick", () => { this.zoomed = false; this.again?.(); });
    this.widths.observe(place);
    const chart = {figure, caption, place, plot};
    this.charts.set(key, chart);
    return chart;
  }

  options(unit, labels, width) {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = {stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), width: 1}};
    const seconds = (value) => value === null || value === undefined ? "" : moment(value, 3).replace(/\.?0+ /, " ");
    return {
      width, height: CHART_HEIGHT,
      scales: {x: {time: this.clock}, y: {range: (plot, low, high) => [0, Math.max(1, high ?? 1) * 1.05]}},
      cursor: {sync: {key: "curves"}, drag: {x: true, y: false, dist: CLICK_PX}, y: false},
      axes: [
        {...axis, size: 28, space: 70, ...(this.clock ? {} : {values: (plot, ticks) => ticks.map(seconds)})},
        {...axis, size: 66, space: 30, values: (plot, ticks) => ticks.map((value) => amount(value, unit).replace(/\.0+ /, " "))},
      ],
      series: [
        {label: "time", value: this.clock ? "{HH}:{mm}:{ss}" : (plot, value) => seconds(value)},
        ...labels.map((label, number) => ({label, width: 1.5, stroke: colour(COLOURS[number % COLOURS.length]),
          points: {show: false}, value: (plot, value) => value === null || value === undefined ? "–" : amount(value, unit)})),
      ],
      hooks: {
        setSelect: [(plot) => { if (plot.select.width >= CLICK_PX) this.zoomed = true; }],
        draw: [(plot) => {
          for (const {at, kind} of this.marks) if (MARKED[kind]) this.line(plot, at, colour(MARKED[kind]), 0.12);
          if (this.at !== null) this.line(plot, this.at, colour("--text"), 1);
        }],
      },
    };
  }

  // A vertical line at a time, over a share of the height.
  line(plot, at, colour, share) {
    const {min, max} = plot.scales.x;
    if (min === null || at < min || at > max) return;
    const {left, top, width, height} = plot.bbox;
    plot.ctx.fillStyle = colour;
    plot.ctx.fillRect(Math.round(left + width * (at - min) / (max - min)), top, devicePixelRatio, height * share);
  }
}

function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  return unit === "b/s" ? rate(value) : `${Number(value.toPrecision(4))}${unit ? ` ${unit}` : ""}`;
}
