"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const written = document.getElementById("written");
written.textContent = new Date(1000 * Number(written.dataset.seconds)).toLocaleString();

// Buttons that copy what stands beside them.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const element = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(element.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(element);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

// What the sliders are set to, out of the grid that was simulated.
const sliders = document.getElementById("sliders");
if (sliders) {
  const { axes, points, measured } = data.grid;
  const inputs = [...sliders.querySelectorAll("input")];
  const number = value => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const show = () => {
    let place = 0;
    const sets = [];
    axes.forEach((axis, n) => {
      const at = Number(inputs[n].value);
      place = place * axis.values.length + at;
      inputs[n].nextElementSibling.textContent = axis.values[at];
      inputs[n].setAttribute("aria-valuetext", axis.values[at]);
      if (at !== axis.now) sets.push(axis.flag.replace("{}", axis.values[at]));
    });
    const point = points[place];
    const interval = ({ low, high }) => (low < high ? ` (${times(low)} to ${times(high)})` : "");
    const times = x => `${(x / measured).toFixed(2)}x`;
    document.getElementById("predicted").textContent = point
      ? `${number(point.rate.value)} samples/s, ${times(point.rate.value)}${interval(point.rate)}` +
        (point.busy ? `; device busy ${(100 * point.busy.value).toFixed(1)} %` : "")
      : "Not simulated: ask `stallscope predict`.";
    document.getElementById("setting").textContent = sets.length ? sets.join(" ") : "the settings of this run";
  };
  sliders.addEventListener("input", show);
  sliders.addEventListener("submit", event => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    axes.forEach((axis, n) => { inputs[n].value = axis.now; });
    show();
  });
  show();
}

// A chart over the window. Rows that stand upon each other are drawn the tallest first, so that each covers what is
// below its own part.
function draw(element, { unit, stacked, rows }, { seconds, marks }) {
  const sums = seconds.map(() => 0);
  const upTo = rows.map(row => row.values.map((value, n) => (stacked ? (sums[n] += value) : value)));
  const order = rows.map((_, n) => n);
  if (stacked) order.reverse();
  const words = value => (stacked ? `${(100 * value).toFixed(1)} %` : `${value.toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`);
  const series = order.map(n => ({
    label: rows[n].name,
    stroke: colour(rows[n].colour),
    points: { show: false },
    spanGaps: true,
    value: (_, __, ___, at) => (at == null || rows[n].values[at] == null ? "" : words(rows[n].values[at])),
    ...(stacked ? { width: 0, fill: colour(rows[n].colour), paths: uPlot.paths.stepped({ align: 1 }) } : { width: 2 }),
  }));
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  const lines = u => {
    u.ctx.save();
    u.ctx.strokeStyle = colour("ink");
    u.ctx.setLineDash([4, 4]);
    for (const mark of marks) {
      const x = Math.round(u.valToPos(mark, "x", true)) + 0.5;
      u.ctx.beginPath();
      u.ctx.moveTo(x, u.bbox.top);
      u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  };
  const options = {
    width: element.clientWidth, height: stacked ? 280 : 200,
    scales: { x: { time: false }, y: { range: stacked ? [0, 1] : (_, __, most) => [0, 1.05 * most || 1] } },
    axes: [
      { ...axis, label: "seconds since measuring began", labelSize: 24 },
      stacked
        ? { ...axis, values: (_, ticks) => ticks.map(tick => `${Math.round(100 * tick)} %`), size: 56 }
        : { ...axis, label: unit, labelSize: 20, size: 56 },
    ],
    series: [{ label: "second", value: (_, v) => (v == null ? "" : v.toFixed(2)) }, ...series],
    hooks: { draw: [lines] },
    cursor: { sync: { key: "window" } },
  };
  element.replaceChildren();
  return new uPlot(options, [seconds, ...order.map(n => upTo[n])], element);
}

const charts = [...document.querySelectorAll("[data-chart]")];
if (charts.length) {
  const all = () => charts.map(element => draw(element, data.over_time.charts[element.dataset.chart], data.over_time));
  let drawn = all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawn = all(); });
  addEventListener("resize", () => drawn.forEach((chart, n) => chart.setSize({ width: charts[n].clientWidth, height: chart.height })));
}

// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui: the viewer answers PING once it is up.
const chooser = document.getElementById("trace");
if (chooser) {
  const viewer = "https://ui.perfetto.dev";
  chooser.addEventListener("change", async () => {
    const file = chooser.files[0];
    if (!file) return;
    const said = document.getElementById("handed");
    const other = open(viewer);
    if (!other) { said.textContent = "The browser blocked the new tab. Allow it, and choose the file again."; return; }
    said.textContent = "Waiting for Perfetto to start.";
    const buffer = await file.arrayBuffer();
    const ping = setInterval(() => other.postMessage("PING", viewer), 100);
    addEventListener("message", function ready(event) {
      if (event.source !== other || event.data !== "PONG") return;
      clearInterval(ping);
      removeEventListener("message", ready);
      other.postMessage({ perfetto: { buffer, title: chooser.dataset.title, fileName: file.name } }, viewer, [buffer]);
      said.textContent = `Handed ${file.name} to Perfetto. It asks whether to open the trace: answer Yes.`;
    });
  });
}
