// What people do with a question and its answer: copy it, ask again, ask otherwise, go on from there elsewhere.

import { ask } from "../net/api.js";
import { copyText } from "./copy.js";
import { button, element, make } from "./dom.js";
import { wantReasoning, wantsReasoning } from "./reasoning.js";
import { typedQuestion } from "./speaker.js";

/** Offers them below the answer of `view`. `fork(view, body, button)` begins another conversation and goes there. */
export function offerActions(view, fork) {
  const form = (label, text, body) => forkForm(label, text, (asked, pressed) => fork(view, { ...body, ...asked }, pressed));
  view.offer("Copy", (pressed) => copyText(view.text(), pressed));
  view.offer("Regenerate", (pressed) => fork(view, { after: 0 }, pressed));
  view.offer("Edit", () => view.openForm(form(editLabel(view), typedQuestion(view), { after: 0, keep_files: true })));
  view.offer("Fork from here", () => view.openForm(form("Next message", "", { after: view.seq })));
  const thinking = view.offer("Thinking", (pressed) => {
    const wanted = pressed.getAttribute("aria-pressed") !== "true";
    pressed.setAttribute("aria-pressed", String(wanted));
    wantReasoning(wanted);
    view.showReasoning(wanted);
  });
  thinking.setAttribute("aria-pressed", String(wantsReasoning()));
  view.offerThoughts(thinking);
}

function editLabel({ speaker, node }) {
  const files = node.querySelector(".question .chip, .question img") ? " (its files are sent with it)" : "";
  return speaker ? `Edited question, from ${speaker}${files}` : `Edited question${files}`;
}

/** The models that can be asked beside the run's own. */
async function otherModels() {
  const { data } = await (await ask("/v1/models")).json();
  return data.map(({ id }) => id).filter((id) => id.includes("/"));
}

/** A message and a model for another conversation: that of a question that is asked otherwise, or of what follows it. */
function forkForm(label, text, send) {
  const message = make("textarea");
  message.rows = 2;
  message.value = text;
  const model = element("select", [choice("", "the same model")]);
  const start = element("button", ["Send in a new conversation"], "primary");
  start.type = "submit";
  const cancel = button("Cancel", () => form.remove());
  const form = element(
    "form",
    [
      element("label", [element("span", [label]), message]),
      element("label", [element("span", ["Model for it"]), model]),
      element("div", [start, cancel], "choices"),
    ],
    "fork-form",
  );
  const submit = (event) => {
    event.preventDefault();
    const input = message.value.trim();
    if (input) send({ input, ...(model.value && { model: model.value }) }, start);
  };
  form.addEventListener("submit", submit);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      form.remove();
    } else if (event.key === "Enter" && event.target === message && !event.shiftKey && !event.isComposing) submit(event);
  });
  otherModels().then(
    (names) => {
      for (const name of names) model.append(choice(name, name));
    },
    () => {}, // the same model can be asked nevertheless
  );
  form.first = message;
  return form;
}

function choice(value, words) {
  const made = element("option", [words]);
  made.value = value;
  return made;
}
