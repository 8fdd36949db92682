// What a button asks for: first what would be done (dry_run), then, when that was read and confirmed, the same in earnest.
const ROLLOUTS = "/api/v1/rollouts";
const dialog = document.getElementById("plan");
const title = document.getElementById("plan-title");
const told = document.getElementById("plan-told");
const hint = document.getElementById("plan-hint");
const yes = document.getElementById("plan-yes");

async function ask(wanted, generation, key) {
  const headers = { "Content-Type": "application/json", "If-Match": `"${generation}"`, ...(key ? { "Idempotency-Key": key } : {}) };
  let answer;
  try {
    answer = await fetch(ROLLOUTS, { method: "POST", headers, body: JSON.stringify(wanted) });
  } catch {
    throw { detail: "The server does not answer.", hint: "It is not known whether it was asked in time: look at the history." };
  }
  const document_ = await answer.json();
  if (!answer.ok) throw document_;
  return document_;
}

function refused(problem) {
  told.textContent = problem.detail ?? "It was refused.";
  hint.textContent = problem.hint ?? "";
  yes.hidden = true;
}

async function begin(button) {
  const { intent, pipeline, to } = button.dataset;
  const wanted = { intent, pipelines: [pipeline], ...(to ? { to: Number(to) } : {}) };
  const generation = document.body.dataset.generation;
  // Made once for this look: asking twice, by a slow answer or an impatient hand, is asking once.
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
  title.textContent = `${button.textContent.trim().replace("…", "")} ${pipeline}?`;
  told.textContent = "Looking at what would be done …";
  hint.textContent = "";
  yes.hidden = false;
  yes.disabled = true;
  yes.textContent = button.textContent.trim().replace("…", "");
  dialog.returnValue = "";
  dialog.showModal();
  try {
    const { would } = await ask({ ...wanted, dry_run: true }, generation);
    told.textContent = `${would[0].toUpperCase()}${would.slice(1)}.`;
    hint.textContent = `Generation ${generation} was looked at; if another one serves by the time you say yes, nothing is done.`;
    yes.disabled = false;
    yes.focus();
  } catch (problem) { refused(problem); }
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") { button.focus(); return; }
    try {
      const { event, number } = await ask(wanted, generation, key);
      const rollout = `/rollouts/${event.rollout ?? number}`;
      if (location.pathname !== rollout) location.assign(rollout);
    } catch (problem) {
      dialog.returnValue = "";
      refused(problem);
      dialog.showModal();
    }
  };
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-intent]");
  if (button) begin(button);
});
