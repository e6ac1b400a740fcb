// A fork from any event of a run: with another message or another model, or simply once more.

import { button } from "../answer/dom.js";
import { ask, newId, post } from "../net/api.js";
import { tellRefusal } from "../net/reached.js";
import { make } from "./dom.js";
import { nameOf } from "./words.js";

/** Asks for the message and the model, and begins the fork. `begun(fork)` gets what the server says of it. */
export function askForFork(run, item, begun) {
  const dialog = make("dialog", "fork-dialog");
  const message = make("textarea");
  message.rows = 3;
  const model = make("select", "", option("", "the same model"));
  const error = make("p", "run-error");
  error.setAttribute("role", "alert");
  const start = make("button", "primary", "Begin the fork");
  start.type = "submit";
  const heading = make("h2", "", "Fork from here");
  heading.id = "fork-heading";
  const form = make(
    "form",
    "",
    heading,
    make("p", "", explained(item)),
    make("label", "field", "Message (may stay empty)", message),
    make("label", "field", "Model for the fork", model),
    error,
    make("div", "choices", start, button("Cancel", () => dialog.close())),
  );
  dialog.setAttribute("aria-labelledby", heading.id);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    start.disabled = true;
    error.textContent = "";
    const text = message.value.trim();
    // Before anything was said, the same question is asked again; with a message, that one instead of it.
    const after = item.kind === "question" ? 0 : item.end_seq;
    const body = { after, ...(text && { input: text }), ...(model.value && { model: model.value }), idempotency_key: newId() };
    try {
      const response = await post(`/runs/${encodeURIComponent(run.id)}/fork`, body);
      begun(await response.json());
      dialog.close();
    } catch (failure) {
      tellRefusal(error, failure);
      start.disabled = false;
    }
  });
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  message.focus();
  offerModels(model);
}

function explained(item) {
  if (item.kind === "question") return "The fork begins before the question: without a message it is asked again.";
  return `The fork begins after event ${item.end_seq} (${nameOf(item).toLowerCase()}). Without a message it goes on from there.`;
}

async function offerModels(select) {
  const listed = await ask("/v1/models").then(
    (response) => response.json(),
    () => ({ data: [] }), // the same model can be asked nevertheless
  );
  for (const { id } of listed.data) if (id.includes("/")) select.append(option(id, id));
}

function option(value, words) {
  const made = make("option", "", words);
  made.value = value;
  return made;
}
