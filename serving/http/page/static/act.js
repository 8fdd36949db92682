// The buttons of a rollout, a reject and a dead letter: first a dry run that shows the effect in a dialog; after a yes, the
// same request in earnest.
const ROLLOUTS = "/api/v1/rollouts", REDRIVE = "/api/v1/rejects/redrive", RETRY = "/api/v1/alerts/retry";
const dialog = document.getElementById("plan");
const title = document.getElementById("plan-title");
const shown = document.getElementById("plan-shown");
const details = document.getElementById("plan-details");
const hint = document.getElementById("plan-hint");
const reason = document.getElementById("plan-reason");
const line = document.getElementById("plan-line");
const yes = document.getElementById("plan-yes");

const UNKNOWN = "It is not known whether it was asked in time: look at the history.";

async function ask(wanted, generation, key, to = ROLLOUTS, unknown = UNKNOWN) {
  const headers = { "Content-Type": "application/json", ...(generation ? { "If-Match": `"${generation}"` } : {}), ...(key ? { "Idempotency-Key": key } : {}) };
  let answer;
  try {
    answer = await fetch(to, { method: "POST", headers, body: JSON.stringify(wanted) });
  } catch {
    throw { detail: "The server does not answer.", hint: unknown };
  }
  const document_ = await answer.json();
  if (!answer.ok) throw document_;
  return document_;
}

// Shows facts, such as the tables that leave with their rows, files and readers: a fact an item.
function list(facts) {
  details.hidden = !facts.length;
  details.replaceChildren(...facts.map((fact) => { const item = document.createElement("li"); item.textContent = fact; return item; }));
}

function explain(problem) {
  shown.textContent = problem.detail ?? "It was refused.";
  hint.textContent = problem.hint ?? "";
}

function refused(problem) {
  explain(problem);
  list([]);
  reason.parentElement.hidden = true;
  line.parentElement.hidden = true;
  yes.hidden = true;
}

// The number of the dialog's dry run: late answers to an earlier, cancelled one are not shown.
let current = 0;
// Only one real request runs at a time, so that the dialog shows its answer and no other.
let asking = false;

// Made once for each dialog, so that a request sent twice takes effect once.
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");

// Opens the dialog for a button. After a yes, calls `request`; `fail` shows why a request failed. Returns the dialog's number.
function openDialog(button, { question, label, waiting, field = null, danger = false, request, fail = refused }) {
  const mine = ++current;
  title.textContent = question;
  shown.textContent = waiting;
  hint.textContent = "";
  list([]);
  for (const each of [line, reason]) {
    each.value = "";
    each.parentElement.hidden = each !== field;
  }
  yes.className = danger ? "danger" : "main";
  yes.hidden = false;
  yes.disabled = true;
  yes.textContent = label;
  dialog.returnValue = "";
  dialog.onclose = () => closeDialog(mine, button, request, fail);
  dialog.showModal();
  return mine;
}

async function closeDialog(mine, button, request, fail) {
  if (dialog.open) return;
  clearTimeout(typing);
  if (dialog.returnValue !== "yes") { if (mine === current) current++; button.focus(); return; }
  asking = true;
  try {
    await request();
  } catch (problem) {
    dialog.returnValue = "";
    fail(problem);
    dialog.showModal();
  } finally { asking = false; }
}

// Asks for a dry run, and shows its effect in the open dialog.
async function rehearse(mine, about, ...request) {
  try {
    const { would, details: facts } = await ask(...request);
    if (mine !== current) return;
    list(facts ?? []);
    shown.textContent = `${would[0].toUpperCase()}${would.slice(1)}.`;
    hint.textContent = about;
    yes.disabled = false;
    yes.focus();
  } catch (problem) { if (mine === current) refused(problem); }
}

const WAITING = "Looking at what would be done …";

function begin(button) {
  const { intent, pipeline, rollout, to } = button.dataset;
  // The rollout of this page, not one that has replaced it: both may be of the same generation.
  const wanted = { intent, pipelines: [pipeline], ...(rollout ? { rollout: Number(rollout) } : {}), ...(to ? { to: Number(to) } : {}) };
  const generation = document.body.dataset.generation;
  const key = newKey(), label = button.textContent.trim().replace("…", "");
  const request = async () => {
    const { rollout: number } = await ask({ ...wanted, reason: reason.value.trim() }, generation, key);
    const place = `/rollouts/${number}`;
    if (location.pathname !== place) location.assign(place);
  };
  const mine = openDialog(button, { question: `${label} ${pipeline}?`, label, waiting: WAITING, field: reason, danger: button.classList.contains("danger"), request });
  rehearse(mine, "If someone else changes what serves before you confirm, nothing happens.", { ...wanted, dry_run: true }, generation);
}

// A reject: a person fixes the line, and after each change a dry run says what would be sent.
const TYPING_MS = 300;
const AGAIN = "A record that is sent twice is folded once: redrive it again.";
let typing;

async function look(mine) {
  yes.disabled = true;
  const text = line.value;
  try {
    const { would, records } = await ask({ lines: [text], dry_run: true }, "", "", REDRIVE);
    // A late answer is about an earlier text.
    if (mine !== current || text !== line.value) return;
    shown.textContent = records ? `${would}.` : "The record is as it was rejected. Fix it below.";
    hint.textContent = "Each table folds the fixed record once, in place of the rejected one.";
    yes.disabled = !records;
  } catch (problem) {
    if (mine === current && text === line.value) explain(problem);
  }
}

async function mend(button) {
  const at = button.dataset.redrive;
  let key = newKey();
  line.oninput = () => {
    yes.disabled = true;
    clearTimeout(typing);
    // Another text is another request.
    key = newKey();
    typing = setTimeout(look, TYPING_MS, current);
  };
  const request = async () => {
    await ask({ lines: [line.value] }, "", key, REDRIVE, AGAIN);
    button.replaceWith("Sent; the next slice folds it.");
  };
  const mine = openDialog(button, { question: `Redrive ${at}?`, label: "Redrive", waiting: "Reading the record …", field: line, request, fail: explain });
  try {
    const answer = await fetch(`/rejects/line?at=${encodeURIComponent(at)}`);
    if (mine !== current) return;
    if (!answer.ok) { refused(await answer.json().catch(() => ({}))); return; }
    line.value = await answer.text();
    line.focus();
    look(mine);
  } catch { if (mine === current) refused({ detail: "The server does not answer." }); }
}

// A dead letter, or all dead letters of an alert.
function resend(button) {
  const { letters: alert, letter: id } = button.dataset;
  const wanted = { alert, ...(id ? { id } : {}) }, key = newKey();
  const request = async () => {
    await ask(wanted, "", key, RETRY, "Look at the dead letters, then send them again.");
    button.replaceWith("Asked for; it is sent once.");
  };
  const mine = openDialog(button, { question: `Send ${id ? "a message" : "all dead letters"} of ${alert} again?`, label: "Send again", waiting: WAITING, request });
  rehearse(mine, "A message that fails again stays a dead letter.", { ...wanted, dry_run: true }, "", "", RETRY);
}

document.addEventListener("click", ({ target }) => {
  if (asking) return;
  for (const [about, act] of [["intent", begin], ["redrive", mend], ["letters", resend]]) {
    const button = target.closest(`[data-${about}]`);
    if (button) act(button);
  }
});

// A button without its script would look as if it did something: the server sends it disabled.
const enable = () => document.querySelectorAll("[data-intent]:disabled, [data-redrive]:disabled, [data-letters]:disabled").forEach((each) => { each.disabled = false; });
new MutationObserver(enable).observe(document.body, { childList: true, subtree: true });
enable();
