// What people do with a question and its answer: copy it, ask again, ask otherwise, go on from there elsewhere.

import { iconButton } from "../icons.js";
import { ask } from "../net/api.js";
import { copyText } from "./copy.js";
import { button, element, make } from "./dom.js";
import { typedQuestion } from "./speaker.js";

/** Offers them below the answer of `view`. `again(view, body, button)` asks for a further version of it, and
 * `fork(view, body, button)` begins another conversation. */
export function offerActions(view, { again, fork }) {
  const figures = iconButton("info", "Figures", () => {
    view.facts.node.hidden = !view.facts.node.hidden;
    figures.setAttribute("aria-expanded", String(!view.facts.node.hidden));
  });
  figures.setAttribute("aria-expanded", "false");
  view.addActions(
    view.versions.node,
    iconButton("copy", "Copy", (pressed) => copyText(view.text(), pressed)),
    iconButton("refresh-cw", "Regenerate", (pressed) => again(view, {}, pressed)),
    iconButton("pencil", "Edit", () => {
      const send = (asked, pressed) => again(view, { ...asked, keep_files: true }, pressed);
      view.openForm(askForm({ label: editLabel(view), text: typedQuestion(view), verb: "Send edited", send }));
    }),
    iconButton("git-fork", "Fork from here", () => {
      const send = (asked, pressed) => fork(view, { ...asked, after: view.seq }, pressed);
      view.openForm(askForm({ label: "Next message", text: "", verb: "Send in a new conversation", send }));
    }),
    figures,
    view.inspect,
  );
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

/** A message and a model for it: that of a question that is asked otherwise, or of what follows it. */
function askForm({ label, text, verb, send }) {
  const message = make("textarea");
  message.rows = 2;
  message.value = text;
  const model = element("select", [choice("", "the same model")]);
  const start = element("button", [verb], "primary");
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
  const submit = async (event) => {
    event.preventDefault();
    const input = message.value.trim();
    if (input && (await send({ input, ...(model.value && { model: model.value }) }, start))) form.remove();
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
