// What stands where nothing was asked yet: the mark, three things to try, and small below them who answers and where.

import { button, element, link } from "../answer/dom.js";
import { icon } from "../icons.js";

const ICONS = ["search", "file-text", "list"]; // of the things to try
const WITH_TOOLS = [
  "What is in this directory?",
  "Explain what this project does and how it is organised.",
  "Find the TODO comments here and say which ones matter.",
];
const WITHOUT_TOOLS = [
  "Explain how a hash map works, with an example in Python.",
  "Which questions should I ask before I choose a database?",
  "Write a polite reply that declines an invitation.",
];
const EMBEDDED = ["Write a haiku about a river.", "What is the capital of France?", "Tell me a short story about a mill."];

/** `about` is what the server says of itself; `choose(text)` puts a suggestion into the box. */
export function drawEmpty(node, about, choose) {
  node.replaceChildren(icon("wave"), heading("How can I help?"));
  if (about?.embedded) {
    node.append(
      element("p", [
        "The embedded model is small and runs on this machine’s processor, without a key. It chats, is often wrong, and " +
          "calls no tools. “tailrace init” sets up another one.",
      ], "embedded"),
    );
  }
  const suggestions = about?.embedded ? EMBEDDED : about?.tools.length === 0 ? WITHOUT_TOOLS : WITH_TOOLS;
  const items = suggestions.map((words, at) => {
    const choice = button(words, () => choose(words));
    choice.prepend(icon(ICONS[at]));
    return element("li", [choice]);
  });
  node.append(element("ul", items, "suggestions"));
  if (about) node.append(facts(about));
}

/** There is no conversation of this name. */
export function drawMissing(node) {
  const back = link("To a new conversation", "/");
  const words = element("p", ["It was deleted, or its address is wrong. A message begins it anew under this name. ", back]);
  node.replaceChildren(heading("This conversation is not here"), words);
}

function facts({ model, directory, tools }) {
  const offered = element("dd", [tools.length ? String(tools.length) : "none"]);
  offered.title = tools.join(", ");
  const pairs = [["Model", element("dd", [model])], ["Directory", element("dd", [directory])], ["Tools", offered]];
  return element("dl", pairs.map(([term, said]) => element("div", [element("dt", [term]), said])));
}

function heading(words) {
  const made = element("h2", [words]);
  made.id = "empty-heading";
  return made;
}
