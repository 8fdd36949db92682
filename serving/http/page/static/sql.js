// The box for SQL: sends a query to the API as any client does, and shows the rows. It also draws
// rows that look like a series, or like amounts by name.
import { draw } from "./chart.js";

const form = document.getElementById("sql");
const box = document.getElementById("query");
const asked = document.getElementById("asked");
const answer = document.getElementById("answer");
const ROWS = 1000, SHOWN = 200, MOST_BARS = 60;
const TIMES = /^(timestamp|date)/i, NUMBERS = /^(u?(tiny|small|big|huge)?int(eger)?|float|double|real|decimal)/i;
let drawn = null;

// As in serving/http/page/render.py: signs that turn the direction of a text are shown.
const straight = (text) => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
const make = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

async function ask() {
  const button = form.querySelector("button");
  button.disabled = true;
  asked.textContent = "Asking …";
  const begun = performance.now();
  try {
    const found = await fetch("/api/v1/query", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sql: box.value, rows: ROWS }) });
    const document_ = JSON.parse(await found.text(), exactly);
    if (found.ok) show(document_, performance.now() - begun);
    else refuse(document_);
  } catch {
    refuse({ detail: "The server does not answer." });
  } finally {
    button.disabled = false;
  }
}

// Whole numbers that JavaScript would round are kept as their text. Older browsers do not give
// that text.
const exactly = (_, value, context) => (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value);
// All times are UTC: one without a zone is not in the reader's zone.
const moment = (text) => Date.parse(/^\d{4,}-\d\d-\d\d[T ][\d:.]+$/.test(text) ? `${text.replace(" ", "T")}Z` : text);

function refuse({ detail, hint }) {
  drawn = null;
  asked.textContent = "";
  answer.replaceChildren(make("div", { class: "notice bad", role: "alert" }, make("p", {}, detail ?? "It was refused."), ...(hint ? [make("p", { class: "muted" }, hint)] : [])));
}

function show({ columns, rows, truncated, generation }, milliseconds) {
  const names = columns.map((each) => each.name);
  const numeric = columns.map((each) => NUMBERS.test(each.type) && !each.type.endsWith("]"));
  asked.textContent = `${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}${truncated ? ", and there are more" : ""}, of generation ${generation}, in ${Math.round(milliseconds).toLocaleString("en")} ms`;
  const place = make("div", { class: "chart", id: "chart", role: "img", "aria-label": "The rows as a chart" });
  const head = make("tr", {}, ...names.map((name, at) => make("th", { scope: "col", class: numeric[at] ? "num" : "" }, straight(name))));
  const body = rows.slice(0, SHOWN).map((row) => make("tr", {}, ...names.map((name, at) => cell(row[name], numeric[at]))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  const charted = chart(columns, numeric, rows);
  answer.replaceChildren(...(charted ? [place] : []), make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "The answer" }, table));
  if (rows.length > SHOWN) answer.append(make("p", { class: "muted" }, `The first ${SHOWN} rows are shown.`));
  drawn = charted && (() => draw(place, charted));
  drawn?.();
}

// Short values stay on one line: a time that is broken at its hyphens is hard to read.
const BRIEF = 24;
const cell = (value, numeric) => make("td", { class: value === null ? "null" : numeric ? "num" : told(value).length <= BRIEF ? "brief" : "" }, told(value));
const told = (value) => (value === null ? "null" : typeof value === "number" && Math.abs(value) > 9999 ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : typeof value === "object" ? straight(JSON.stringify(value)) : straight(String(value)));

// Chooses a chart. The first column is x, columns of numbers are y: a line over times or numbers,
// bars over names. Returns null for other rows, which are shown as a table only.
function chart(columns, numeric, rows) {
  const [first] = columns;
  const values = columns.filter((each, at) => at > 0 && numeric[at]).slice(0, 5);
  if (rows.length < 2 || !values.length) return null;
  const number = (value) => (value === null || !Number.isFinite(Number(value)) ? null : Number(value));
  if (TIMES.test(first.type) || numeric[0]) {
    const time = !numeric[0];
    const at = (row) => (time ? moment(row[first.name]) / 1000 : number(row[first.name]));
    const sorted = rows.filter((row) => row[first.name] !== null).map((row) => [at(row), row]).sort(([one], [other]) => one - other);
    const x = sorted.map(([place]) => place);
    // Rows with equal x are no series.
    if (x.length < 2 || x.some((place, each) => !Number.isFinite(place) || place === x[each - 1])) return null;
    return { x, time, where: first.name, series: values.map(({ name }) => ({ label: name, values: sorted.map(([, row]) => number(row[name])) })) };
  }
  const labels = rows.map((row) => String(row[first.name]));
  if (!/^varchar|^enum|^bool/i.test(first.type) || labels.length > MOST_BARS || new Set(labels).size < labels.length) return null;
  return { x: labels.map((_, at) => at), time: false, where: first.name, labels, bars: true, series: values.slice(0, 1).map(({ name }) => ({ label: name, values: rows.map((row) => number(row[name])) })) };
}

form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
addEventListener("kappa-redraw", () => drawn?.());
