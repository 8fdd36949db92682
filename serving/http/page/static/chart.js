// Charts, by uPlot. Colours are taken from the style sheet, so that they fit light and dark; sizes
// from the element.
const drawn = new WeakMap();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 3 });
// As many digits as a tick has: rates of a quiet topic are far below one, and a tick between 0 and
// 0.5 is at 0.25.
const digits = (step) => { let count = 0; while (count < 9 && Math.abs(step * 10 ** count - Math.round(step * 10 ** count)) > 1e-6) count++; return count; };
const tick = (each, step) => (step >= 1 ? compact.format(each) : each.toLocaleString("en", { maximumFractionDigits: digits(step) }));
const named = (at, name) => at.map((each) => (each == null ? null : name(each)));
// Without ticks above the largest value.
function below(plot, at) {
  const most = Math.max(0, ...plot.data.slice(1).flat());
  return at.map((each) => (each <= most * (1 + 1e-9) ? each : null));
}
// As wide as the longest name of a tick, at least as five letters: other ticks seldom move the plot.
const gutter = (letters, least) => (plot, names, axis, turn) =>
  turn > 1 ? plot.axes[axis]._size : Math.max(least, Math.ceil(9 + 0.66 * letters * Math.max(0, ...(names ?? []).map((each) => String(each ?? "").length))));
// All times are UTC, as everywhere.
const utc = (seconds) => new Date(seconds * 1000).toISOString();
// Pixels between two labels: a date is wider than an hour.
const SPACE = { small: 70, time: 92, plain: 60 };
// The first time of another day is its date.
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const isNewDay = (at, place) => place > 0 && utc(at[place]).slice(0, 10) !== utc(at[place - 1]).slice(0, 10);
const clock = (_, at, __, ___, step) => at.map((each, place) => (step >= 86400 ? utc(each).slice(0, 10) : isNewDay(at, place) ? day.format(1000 * each) : utc(each).slice(11, step >= 60 ? 16 : 19)));
// A name stands out of the chart by half at the ends: a date by more than an hour.
const DATED_SECONDS = 2 * 86400, HALF = { clock: 26, date: 34 };

// The value at the pointer, or the newest value while nobody points.
const pointed = (plot, value, series) => value ?? (plot.cursor?.idx == null ? plot.data?.[series]?.at(-1) : null);

// More points than this are a line without marks.
const MOST_MARKED = 24;

// Values on both sides of zero: the line between them.
function drawZero(plot) {
  const { min, max } = plot.scales.y;
  if (!(min < 0 && max > 0)) return;
  const { ctx, bbox } = plot, at = Math.round(plot.valToPos(0, "y", true)) + 0.5;
  ctx.save();
  ctx.strokeStyle = colour("--strong");
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(bbox.left, at);
  ctx.lineTo(bbox.left + bbox.width, at);
  ctx.stroke();
  ctx.restore();
}

// The charts whose last point is of a period that has not ended: the line to this point is pale,
// and the point is a ring.
const open = new WeakSet();
function drawOpen(place, plot) {
  const x = plot.data[0];
  if (!open.has(place) || x.length < 2) return;
  const { ctx, bbox } = plot, end = bbox.left + bbox.width;
  const from = Math.max(bbox.left, plot.valToPos(x.at(-2), "x", true));
  if (from >= end) return;
  ctx.save();
  ctx.globalCompositeOperation = "destination-out";
  ctx.fillStyle = "rgb(0 0 0 / .65)";
  // A mark of a point is wider than its point.
  ctx.fillRect(from, bbox.top, end - from + 6 * devicePixelRatio, bbox.height);
  const last = plot.valToPos(x.at(-1), "x", true);
  ctx.globalCompositeOperation = "source-over";
  ctx.fillStyle = colour("--sheet");
  ctx.lineWidth = 1.6 * devicePixelRatio;
  for (const [at, values] of plot.data.slice(1).entries()) {
    // A person may hide a line, or look at a part of the time.
    if (values.at(-1) == null || !plot.series[at + 1].show || last > end + 1) continue;
    ctx.strokeStyle = plot.series[at + 1].stroke(plot, at + 1);
    ctx.beginPath();
    ctx.arc(last, plot.valToPos(values.at(-1), "y", true), 4 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}

// Draws a chart. series: [{label, values}]; x: numbers (times in seconds, if `time`);
// labels: names in place of the numbers; where: the name of x.
export function draw(place, { x, series, time = true, labels = null, where = "", bars = false, unit = "", small = false }) {
  const own = getComputedStyle(place);
  const letters = parseInt(own.getPropertyValue("--chart-letters"), 10) || 11;
  const wider = letters / 11;
  const strokes = [colour("--accent"), colour("--ok"), colour("--warn"), colour("--bad"), colour("--muted")];
  const axis = { stroke: colour("--muted"), font: `${letters}px system-ui, sans-serif`, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const half = HALF[!time || x.at(-1) - x[0] >= DATED_SECONDS ? "date" : "clock"];
  const shape = bars ? uPlot.paths.bars({ size: [0.7, 64] }) : undefined;
  const options = {
    width: place.clientWidth || 300,
    height: small ? 92 : parseInt(own.getPropertyValue("--chart-height"), 10) || 260,
    padding: small ? [6, 28, 0, 0] : [10, half * wider, 0, 0],
    // On a wall nobody points at a value.
    legend: { show: !small, live: !document.body.classList.contains("kiosk"), markers: { width: 0, fill: (_, at) => strokes[(at - 1) % strokes.length] } },
    hooks: { drawAxes: [drawZero], draw: [(plot) => drawOpen(place, plot)] },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: small ? { show: false } : { drag: { x: true, y: false } },
    scales: { x: { time, range: labels ? (_, low, high) => [low - 0.6, high + 0.6] : undefined }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : low < 0 ? 0 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: wider * (small ? 18 : 32), gap: small ? 5 : 9, space: wider * (small ? SPACE.small : time ? SPACE.time : SPACE.plain), ...(labels ? { values: (_, at) => at.map((each) => shorten(labels[each])), splits: () => spread(labels.length, place.clientWidth) } : time ? { values: clock } : {}) },
      { ...axis, grid: { ...axis.grid, filter: below }, filter: below, size: small ? 50 * wider : gutter(letters, 46 * wider), space: small ? 30 : 48, values: (_, at, __, ___, step) => named(at, (each) => tick(each, step) + unit) },
    ],
    series: [
      { label: where, value: (plot, found, series, __, at = pointed(plot, found, series)) => (at == null ? "—" : labels ? (labels[at] ?? "—") : time ? `${utc(at).slice(0, 19).replace("T", " ")} UTC` : at.toLocaleString("en")) },
      ...series.map(({ label }, at) => ({ label, stroke: strokes[at % strokes.length], width: bars ? 0 : 1.6, fill: bars ? strokes[at % strokes.length] : small ? colour("--tint") : undefined, paths: shape, points: { show: !small && !bars && x.length <= MOST_MARKED, size: 6, fill: strokes[at % strokes.length] }, value: (plot, found, series, __, v = pointed(plot, found, series)) => (v == null ? "—" : v.toLocaleString("en")) })),
    ],
  };
  drawn.get(place)?.destroy();
  place.replaceChildren();
  // A tile may be as tall as the tiles beside it: the plot takes what the legend leaves. The legend
  // has its height, and the plot can be sized, once the plot is drawn.
  const room = place.clientHeight;
  options.hooks.ready = [(plot) => queueMicrotask(() => {
    const height = room - (place.querySelector(".u-legend")?.offsetHeight ?? 0);
    if (height > options.height) plot.setSize({ width: options.width, height });
  })];
  drawn.set(place, new uPlot(options, [x, ...series.map((each) => each.values)], place));
}

const shorten = (text) => (text == null ? "" : text.length > 14 ? `${text.slice(0, 13)}…` : text);
const spread = (count, width) => {
  const every = Math.max(1, Math.ceil(count / Math.max(1, Math.floor(width / 90))));
  return Array.from({ length: Math.ceil(count / every) }, (_, at) => at * every);
};

// Draws the charts whose data the server has put into the page.
export function drawCharts(anew = false) {
  if (typeof uPlot === "undefined") return;
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (!anew && place.dataset.drawn === place.dataset.chart) continue;
    const { x, y, unit, open: isOpen, ...lines } = JSON.parse(place.dataset.chart);
    open[isOpen ? "add" : "delete"](place);
    const what = lines.series ? { x, ...lines } : { x, series: [{ label: unit, values: y }], unit, small: true };
    const known = drawn.get(place);
    const same = known && known.series.slice(1).map((each) => each.label).join() === what.series.map((each) => each.label).join();
    if (same && !anew) known.setData([x, ...what.series.map((each) => each.values)]);
    else draw(place, what);
    place.dataset.drawn = place.dataset.chart;
  }
}

const anew = () => drawCharts(true);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
let due;
addEventListener("resize", () => { clearTimeout(due); due = setTimeout(anew, 150); });
if (document.readyState === "complete") drawCharts();
else addEventListener("load", () => drawCharts());
