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

function refused(problem) {
  list([]);
  shown.textContent = problem.detail ?? "It was refused.";
  hint.textContent = problem.hint ?? "";
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

async function begin(button) {
  if (asking) return;
  const mine = ++current;
  const { intent, pipeline, rollout, to } = button.dataset;
  // The rollout of this page, not one that has replaced it: both may be of the same generation.
  const wanted = { intent, pipelines: [pipeline], ...(rollout ? { rollout: Number(rollout) } : {}), ...(to ? { to: Number(to) } : {}) };
  const generation = document.body.dataset.generation;
  const key = newKey();
  line.parentElement.hidden = true;
  title.textContent = `${button.textContent.trim().replace("…", "")} ${pipeline}?`;
  shown.textContent = "Looking at what would be done …";
  hint.textContent = "";
  list([]);
  yes.className = button.classList.contains("danger") ? "danger" : "main";
  reason.value = "";
  reason.parentElement.hidden = false;
  yes.hidden = false;
  yes.disabled = true;
  yes.textContent = button.textContent.trim().replace("…", "");
  dialog.returnValue = "";
  dialog.onclose = () => close(mine, button, wanted, generation, key);
  dialog.showModal();
  try {
    const { would, details: facts } = await ask({ ...wanted, dry_run: true }, generation);
    if (mine !== current) return;
    list(facts ?? []);
    shown.textContent = `${would[0].toUpperCase()}${would.slice(1)}.`;
    hint.textContent = "If someone else changes what serves before you confirm, nothing happens.";
    yes.disabled = false;
    yes.focus();
  } catch (problem) { if (mine === current) refused(problem); }
}

async function close(mine, button, wanted, generation, key) {
  if (dialog.open) return;
  if (dialog.returnValue !== "yes") { if (mine === current) current++; button.focus(); return; }
  asking = true;
  try {
    const { rollout: number } = await ask({ ...wanted, reason: reason.value.trim() }, generation, key);
    const place = `/rollouts/${number}`;
    if (location.pathname !== place) location.assign(place);
  } catch (problem) {
    dialog.returnValue = "";
    refused(problem);
    dialog.showModal();
  } finally { asking = false; }
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
    if (mine !== current || text !== line.value) return;
    shown.textContent = problem.detail ?? "It was refused.";
    hint.textContent = problem.hint ?? "";
  }
}

async function mend(button) {
  if (asking) return;
  const mine = ++current, at = button.dataset.redrive;
  let key = newKey();
  title.textContent = `Redrive ${at}?`;
  shown.textContent = "Reading the record …";
  hint.textContent = "";
  list([]);
  line.value = "";
  line.parentElement.hidden = false;
  reason.parentElement.hidden = true;
  yes.className = "main";
  yes.hidden = false;
  yes.disabled = true;
  yes.textContent = "Redrive";
  dialog.returnValue = "";
  line.oninput = () => {
    yes.disabled = true;
    clearTimeout(typing);
    // Another text is another request.
    key = newKey();
    typing = setTimeout(look, TYPING_MS, mine);
  };
  dialog.onclose = () => redrive(mine, button, () => key);
  dialog.showModal();
  try {
    const answer = await fetch(`/rejects/line?at=${encodeURIComponent(at)}`);
    if (mine !== current) return;
    if (!answer.ok) { refused(await answer.json().catch(() => ({}))); return; }
    line.value = await answer.text();
    line.focus();
    look(mine);
  } catch { if (mine === current) refused({ detail: "The server does not answer." }); }
}

async function redrive(mine, button, key) {
  if (dialog.open) return;
  clearTimeout(typing);
  if (dialog.returnValue !== "yes") { if (mine === current) current++; button.focus(); return; }
  asking = true;
  try {
    await ask({ lines: [line.value] }, "", key(), REDRIVE, AGAIN);
    button.replaceWith("Sent; the next slice folds it.");
  } catch (problem) {
    dialog.returnValue = "";
    shown.textContent = problem.detail ?? "It was refused.";
    hint.textContent = problem.hint ?? "";
    dialog.showModal();
  } finally { asking = false; }
}

// A dead letter, or all dead letters of an alert.
async function resend(button) {
  if (asking) return;
  const mine = ++current, { letters: alert, letter: id } = button.dataset;
  const wanted = { alert, ...(id ? { id } : {}) }, key = newKey();
  title.textContent = `Send ${id ? "a message" : "all dead letters"} of ${alert} again?`;
  shown.textContent = "Looking at what would be done …";
  hint.textContent = "";
  list([]);
  line.parentElement.hidden = true;
  reason.parentElement.hidden = true;
  yes.className = "main";
  yes.hidden = false;
  yes.disabled = true;
  yes.textContent = "Send again";
  dialog.returnValue = "";
  dialog.onclose = () => send(mine, button, wanted, key);
  dialog.showModal();
  try {
    const { would } = await ask({ ...wanted, dry_run: true }, "", "", RETRY);
    if (mine !== current) return;
    shown.textContent = `${would}.`;
    hint.textContent = "A message that fails again stays a dead letter.";
    yes.disabled = false;
    yes.focus();
  } catch (problem) { if (mine === current) refused(problem); }
}

async function send(mine, button, wanted, key) {
  if (dialog.open) return;
  if (dialog.returnValue !== "yes") { if (mine === current) current++; button.focus(); return; }
  asking = true;
  try {
    await ask(wanted, "", key, RETRY, "Look at the dead letters, then send them again.");
    button.replaceWith("Asked for; it is sent once.");
  } catch (problem) {
    dialog.returnValue = "";
    refused(problem);
    dialog.showModal();
  } finally { asking = false; }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-intent]");
  if (button) begin(button);
  const reject = event.target.closest("[data-redrive]");
  if (reject) mend(reject);
  const letter = event.target.closest("[data-letters]");
  if (letter) resend(letter);
});

// A button without its script would look as if it did something: the server sends it disabled.
const enable = () => document.querySelectorAll("[data-intent]:disabled, [data-redrive]:disabled, [data-letters]:disabled").forEach((each) => { each.disabled = false; });
new MutationObserver(enable).observe(document.body, { childList: true, subtree: true });
enable();
