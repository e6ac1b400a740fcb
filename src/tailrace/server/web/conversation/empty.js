// What stands where nothing was asked yet: the mark, three things to try, and small below them who answers and where.

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
      line(
        "The embedded model is small and runs on this machine’s processor, without a key. It chats, is often wrong, and " +
          "calls no tools. “tailrace init” sets up another one.",
        "embedded",
      ),
    );
  }
  const suggestions = about?.embedded ? EMBEDDED : about?.tools.length === 0 ? WITHOUT_TOOLS : WITH_TOOLS;
  const list = make("ul", "suggestions");
  suggestions.forEach((words, at) => {
    const button = make("button");
    button.type = "button";
    button.append(icon(ICONS[at]), words);
    button.addEventListener("click", () => choose(words));
    const item = make("li");
    item.append(button);
    list.append(item);
  });
  node.append(list);
  if (about) node.append(facts(about));
}

/** There is no conversation of this name. */
export function drawMissing(node) {
  const words = line("It was deleted, or its address is wrong. A message begins it anew under this name. ");
  const back = make("a");
  back.href = "/";
  back.textContent = "To a new conversation";
  words.append(back);
  node.replaceChildren(heading("This conversation is not here"), words);
}

function facts({ model, directory, tools }) {
  const list = make("dl");
  const offered = tools.length ? String(tools.length) : "none";
  for (const [term, value] of [["Model", model], ["Directory", directory], ["Tools", offered]]) {
    const name = make("dt");
    name.textContent = term;
    const said = make("dd");
    said.textContent = value;
    if (term === "Tools") said.title = tools.join(", ");
    const pair = make("div");
    pair.append(name, said);
    list.append(pair);
  }
  return list;
}

function heading(words) {
  const made = line(words, "", "h2");
  made.id = "empty-heading";
  return made;
}

function line(words, name, tag = "p") {
  const made = make(tag, name);
  made.textContent = words;
  return made;
}

function make(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}
