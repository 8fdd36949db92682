// The box for SQL. The server answers with the page of the query, as without scripts, and the
// script takes the answer out of that page. The address follows the query, and the browser keeps
// the last queries.
import { drawCharts } from "./chart.js";

const form = document.getElementById("sql");
const box = document.getElementById("query");
const asked = document.getElementById("asked");
const answer = document.getElementById("answer");
const past = document.getElementById("past");
// Remarks, strings, quoted names, words and all else. What is not closed goes to the end.
const PARTS = /(--.*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|([a-z_]\w*)|[^a-z_'"/-]+|[^]/gi;
const WORDS = new Set("all and any as asc between by case cast cross desc distinct else end except exists false filter first from full group having ilike in inner intersect interval into is join last left like limit not null nulls offset on or order outer over partition pivot qualify recursive right sample select semi then true union unpivot using values when where window with".split(" "));
const PAGE = "/query", KEPT = "kappa-queries", MOST = 50, LONGEST_IN_ADDRESS = 2000;
let current = 0;

// Returns the text of a query with its words, names, strings and remarks marked by classes.
function coloured(sql) {
  const found = new DocumentFragment();
  for (const [text, remark, string, name, word] of sql.matchAll(PARTS)) {
    const kind = remark ? "remark" : string ? "string" : word && WORDS.has(word.toLowerCase()) ? "word" : name || word ? "name" : "";
    const part = kind ? document.createElement("span") : document.createTextNode(text);
    if (kind) { part.className = `sql-${kind}`; part.textContent = text; }
    found.append(part);
  }
  return found;
}

// The box itself shows one colour: a text of the same letters lies over it.
const shade = document.createElement("pre");
shade.setAttribute("aria-hidden", "true");
function paint() {
  // A last line without a letter has a height, too.
  shade.replaceChildren(coloured(`${box.value}\n`));
  shade.scrollTop = box.scrollTop;
}
box.before(shade);
box.addEventListener("input", paint);
box.addEventListener("scroll", () => { shade.scrollTop = box.scrollTop; });

async function ask({ moved = false } = {}) {
  const mine = ++current, sql = box.value;
  if (!sql.trim()) return;
  asked.textContent = "Running …";
  answer.setAttribute("aria-busy", "true");
  let found = null;
  try {
    const sent = await fetch(PAGE, { method: "POST", headers: { Accept: "text/html" }, body: new URLSearchParams({ sql }), redirect: "manual" });
    // The server redirects to the login: the token has changed, or the cookie has expired.
    if (sent.type === "opaqueredirect") { location.reload(); return; }
    found = new DOMParser().parseFromString(await sent.text(), "text/html").getElementById("answer");
  } catch { /* said below */ }
  // A later query was asked meanwhile.
  if (mine !== current) return;
  answer.removeAttribute("aria-busy");
  const told = found?.querySelector("#told");
  asked.replaceChildren(...(told?.childNodes ?? []));
  told?.remove();
  if (found) answer.replaceChildren(...found.childNodes);
  else refuse("The server does not answer.");
  sortable();
  drawCharts();
  keep(sql);
  if (!moved) {
    const address = sql.length <= LONGEST_IN_ADDRESS ? `${PAGE}?${new URLSearchParams({ sql })}` : PAGE;
    if (address !== location.pathname + location.search) history.pushState({ sql }, "", address);
  }
}

// A click on a column sorts the rows that are shown: up, and then down. Nulls come last.
function sortBy(head) {
  const body = head.closest("table").tBodies[0], at = head.cellIndex, isNumber = head.classList.contains("num");
  const down = head.getAttribute("aria-sort") === "ascending";
  const key = (row) => {
    const cell = row.cells[at], text = cell.title || cell.textContent;
    if (cell.classList.contains("null")) return null;
    return !isNumber ? text : Number.isNaN(Number(text.replaceAll(",", ""))) ? null : Number(text.replaceAll(",", ""));
  };
  const found = [...body.rows].map((row) => [key(row), row]);
  found.sort(([one], [other]) => (one === other ? 0 : one === null ? 1 : other === null ? -1 : (one < other ? -1 : 1) * (down ? -1 : 1)));
  for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...found.map(([, row]) => row));
}

function sortable() {
  for (const head of answer.querySelectorAll(".scroll thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plainly";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(head));
    head.append(button);
  }
}

function refuse(text) {
  const notice = document.createElement("div"), line = document.createElement("p");
  notice.className = "notice bad";
  notice.setAttribute("role", "alert");
  line.textContent = text;
  notice.append(line);
  answer.replaceChildren(notice);
}

// The last queries of this browser, newest first. A browser may refuse to keep anything.
function kept() {
  try { return JSON.parse(localStorage.getItem(KEPT)) ?? []; } catch { return []; }
}

function keep(sql) {
  const queries = [sql, ...kept().filter((each) => each !== sql)].slice(0, MOST);
  try { localStorage.setItem(KEPT, JSON.stringify(queries)); } catch { return; }
  list();
}

function list() {
  const queries = kept();
  past.hidden = !queries.length;
  past.querySelector("ol").replaceChildren(...queries.map((sql) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.className = "plainly id";
    button.textContent = sql.replace(/\s+/g, " ").slice(0, 120);
    button.addEventListener("click", () => { box.value = sql; paint(); ask(); box.focus(); });
    item.append(button);
    return item;
  }));
}

form.addEventListener("submit", (event) => {
  // A file comes as without scripts.
  if (event.submitter?.hasAttribute("data-file")) return;
  event.preventDefault();
  ask();
});
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
// Back and forward: the query of that address is asked again.
addEventListener("popstate", (event) => {
  box.value = event.state?.sql ?? new URLSearchParams(location.search).get("sql") ?? "";
  paint();
  if (box.value) ask({ moved: true });
  else answer.replaceChildren();
});
const told = document.getElementById("told");
if (told) { asked.replaceChildren(...told.childNodes); told.remove(); keep(box.value); }
for (const each of document.querySelectorAll("[data-sql]")) each.replaceChildren(coloured(each.textContent));
paint();
list();
sortable();
