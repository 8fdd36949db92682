// Live updates: after an event the page fetches itself again, and changes only the nodes that
// differ. All its values are the server's. If events stop, it shows that, and reconnects by itself.
import { drawCharts } from "./chart.js";

const line = document.getElementById("line");
const PROGRESS = "/api/v1/events?progress=true";
const KINDS = ["progress", "staged", "switch_asked", "caught_up", "verified", "verify_asked", "promote_asked", "held", "released", "served", "abandoned", "failed", "retired", "proved"];
// The server looks once a second. A page with many events is fetched less often than they arrive.
// A page that takes the server much work rests, so that it takes 2 % of a core; a board is there
// to be watched, and an event of the journal is worth a look at once.
const LEAST_MS = 700, BOARD_MS = 1000, REST = 50;
// Pages change without events too: rates fall, and a build that followed the log is now behind.
const MOST_MS = 12000, OFTEN_MS = 2000;
let asking = false, again = 0, asked = 0, took = 0, wake = null, seen = new Date(), lost = false;

function say(state, text) {
  line.dataset.state = state;
  if (line.textContent !== text) line.textContent = text;
  document.body.classList.toggle("stale", state === "lost");
}

const isBoard = () => document.querySelector("[data-reads]") !== null;

function pauseMs(soon) {
  const least = isBoard() ? BOARD_MS : LEAST_MS;
  const rest = soon || isBoard() ? 0 : Math.min(MOST_MS, REST * took);
  return Math.max(0, Math.max(least, rest) - (Date.now() - asked));
}

export async function refresh(soon = false) {
  if (!document.querySelector("[data-live]")) return;
  // A page that is still to be asked for has this event, too; another is asked for once more.
  if (wake) { if (soon) wake(); return; }
  if (asking) { again = Math.max(again, soon ? 2 : 1); return; }
  asking = true;
  try {
    await new Promise((go) => {
      wake = () => setTimeout(go, pauseMs(true));
      setTimeout(go, pauseMs(soon));
    });
    wake = null;
    asked = Date.now();
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    // The server redirects to the login: the token has changed, or the cookie has expired.
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    if (answer.ok) {
      took = Number(/dur=([0-9.]+)/.exec(answer.headers.get("Server-Timing"))?.[1] ?? 0);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      keepFocus(() => take(page));
      seen = new Date();
    }
  } catch { /* the event stream reports a lost server */ } finally {
    asking = false;
    const soonAgain = again === 2;
    if (again) { again = 0; refresh(soonAgain); }
  }
}

// Changes the page. If the change replaces the element that has the focus, an equal one gets it.
function keepFocus(change) {
  const held = document.activeElement;
  change();
  if (!held || held.isConnected) return;
  const equal = [...document.querySelectorAll(held.nodeName)].find((each) => each.isEqualNode(held));
  equal?.focus({ preventScroll: true });
}

function take(page) {
  document.body.dataset.generation = page.body.dataset.generation ?? "";
  for (const here of document.querySelectorAll("[data-live]")) {
    const there = page.getElementById(here.id);
    if (there) become(here, there);
  }
  // The counts of the navigation.
  const nav = document.querySelector("nav"), other = page.querySelector("nav");
  if (nav && other) become(nav, other);
  load();
  drawCharts();
  // The server has not yet asked a board's queries of the newest rows.
  if (document.querySelector("[data-behind]")) setTimeout(refresh, BOARD_MS);
}

// The page's own: what a person has opened, and the buttons that act.js has enabled.
const OWN = new Set(["open", "disabled"]);

// Makes one node equal to another. It changes only differences, so that focus, open details and
// charts stay.
function become(here, there) {
  if (here.isEqualNode(there)) return;
  if (here.nodeType !== there.nodeType || here.nodeName !== there.nodeName || here.id !== there.id) { here.replaceWith(there); return; }
  if (here.nodeType !== Node.ELEMENT_NODE) { here.nodeValue = there.nodeValue; return; }
  for (const { name } of [...here.attributes]) if (!there.hasAttribute(name) && !OWN.has(name)) here.removeAttribute(name);
  for (const { name, value } of there.attributes) if (here.getAttribute(name) !== value && !OWN.has(name)) here.setAttribute(name, value);
  if (here.hasAttribute("data-keep")) return;
  // What has an id stays itself wherever it moves, so that an open record stays open.
  const named = new Map([...here.children].filter((each) => each.id).map((each) => [each.id, each]));
  const next = [...there.childNodes];
  next.forEach((each, place) => {
    let at = here.childNodes[place] ?? null;
    if ((each.id ?? "") !== (at?.id ?? "")) { at = here.insertBefore(named.get(each.id) ?? each, at); }
    else if (!at) at = here.appendChild(each);
    if (at !== each) become(at, each);
  });
  while (here.childNodes.length > next.length) here.lastChild.remove();
}

// A search: the list follows while one types. The address has the search, as without scripts.
const TYPING_MS = 250;
let typing;
function filter(form) {
  const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", wanted.size ? `${location.pathname}?${wanted}` : location.pathname);
  asked = 0;
  refresh(true);
}
document.addEventListener("input", (event) => {
  const form = event.target.closest("[data-filter]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(filter, TYPING_MS, form);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-filter]")) return;
  event.preventDefault();
  filter(event.target);
});

// `/` leads to the search of a list, unless one types.
document.addEventListener("keydown", (event) => {
  const search = document.querySelector(".search input[type=search]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !search) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  search.select();
  search.focus();
});

// Copies the text before a button. Where a browser does not let a page copy, the text is selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
  }
});

// Loads the slow parts of a page once, after the page. A part that is not ready is fetched again.
const AGAIN_MS = 2000;
const loaded = new WeakMap();
function load() {
  for (const place of document.querySelectorAll("[data-load]")) {
    const from = place.dataset.load;
    if (loaded.get(place) === from) continue;
    loaded.set(place, from);
    fetch(from, { headers: { Accept: "text/html" } })
      .then((answer) => answer.text())
      .then((text) => {
        const found = new DOMParser().parseFromString(text, "text/html").getElementById(place.id);
        if (found?.hasAttribute("data-again")) setTimeout(() => { loaded.delete(place); load(); }, AGAIN_MS);
        if (found) keepFocus(() => place.replaceChildren(...found.childNodes));
      })
      .catch(() => {});
  }
}

const UNITS = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
function relative(seconds) {
  let left = Math.floor(Math.abs(seconds));
  if (left < 1) return "just now";
  const told = [];
  for (const [length, name] of UNITS) {
    const count = Math.floor(left / length);
    left -= count * length;
    if (count && (name !== "s" || !told.length)) told.push(`${count} ${name}`);
  }
  const said = told.slice(0, 2).join(" ");
  return seconds > 0 ? `${said} ago` : `in ${said}`;
}

function tick() {
  for (const each of document.querySelectorAll("time[data-relative]")) {
    const said = relative((Date.now() - Date.parse(each.dateTime)) / 1000);
    if (each.textContent !== said) each.textContent = said;
  }
  if (lost) say("lost", `Connection lost; as of ${seen.toISOString().slice(11, 19)} UTC`);
  else if (!document.hidden && (!followed() || events?.readyState === EventSource.OPEN) && Date.now() - asked > (document.querySelector("[data-often]") ? OFTEN_MS : MOST_MS)) refresh();
}

// Reloads the page if its cookie is no longer valid, so that the login form appears.
async function known() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") location.reload();
  } catch { /* the server is unreachable */ }
}

// The events after which this page fetches itself again: the address of their stream, and their
// names. It is the one place that decides so. A board names the tables that it reads, as pipeline
// and name, in `data-reads`: it follows the change sets of these alone. Whoever may read some
// tables alone follows nothing else.
function followed() {
  const reads = JSON.parse(document.querySelector("[data-reads]")?.dataset.reads || "[]");
  if (!reads.length && document.body.hasAttribute("data-limited")) return null;
  if (!reads.length) return { from: PROGRESS, kinds: KINDS };
  const tables = reads.map(([, table]) => `table=${encodeURIComponent(table)}`);
  return { from: `/api/v1/changes?${tables.join("&")}`, kinds: ["changed"] };
}

let events = null;
function listen(wait = 1000) {
  events?.close();
  const stream = followed();
  if (!stream) { events = null; return; }
  const { from, kinds } = stream;
  const mine = (events = new EventSource(from));
  mine.onopen = () => { wait = 1000; lost = false; say("live", "Page live"); refresh(); };
  mine.onerror = () => {
    lost = true;
    tick();
    // A refusal ends the stream for good: a browser reconnects by itself only after a cut.
    if (mine.readyState !== EventSource.CLOSED) return;
    known();
    setTimeout(() => mine === events && listen(Math.min(2 * wait, 15000)), wait);
  };
  for (const kind of kinds) mine.addEventListener(kind, () => refresh(kind !== "progress"));
}

// A browser has six connections to a server: hidden tabs must not use them.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) { listen(); return; }
  events?.close();
  events = null;
});
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
setInterval(tick, 1000);
load();
listen();
