// The slash commands of the message box: the words of the server's one table, and a list of them while one is typed.

import { element } from "../answer/dom.js";
import TABLE from "./slash_commands.js"; // made by the server

const TYPED = /^\/([a-z]*)$/i;
const COMMAND = /^\/([a-z]+)(?:\s+([^]*))?$/i;

/** What there is: { name, usage, help }. */
const COMMANDS = TABLE.map(({ name, help, usage = "", argument }) => ({ name, help, usage: usage || fieldOf(argument) }));

function fieldOf(argument) {
  if (!argument) return "";
  return `[${argument.values?.join(", ") || argument.name}]`;
}

/** { name, argument } of a text that is a command; null for any other text. A path is none. */
export function commandIn(text) {
  const found = COMMAND.exec(text.trim());
  if (!found) return null;
  const typed = found[1].toLowerCase();
  return { name: typed, argument: (found[2] ?? "").trim(), isKnown: COMMANDS.some(({ name }) => name === typed) };
}

/** The list above the box. `take(text)` puts a command into the box. */
export class CommandList {
  constructor(node, box, take) {
    Object.assign(this, { node, box, take, shown: [], at: 0 });
  }

  /** After each change of what is written. */
  update() {
    const typed = TYPED.exec(this.box.value);
    this.shown = typed ? COMMANDS.filter(({ name }) => name.startsWith(typed[1].toLowerCase())) : [];
    this.at = 0;
    this.draw();
  }

  /** Whether the key was for the list. */
  press(event) {
    if (!this.shown.length) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.at = (this.at + step + this.shown.length) % this.shown.length;
    else if (event.key === "Escape") this.shown = [];
    else if (event.key === "Tab") this.choose(this.shown[this.at]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    this.draw();
    return true;
  }

  /** The command that Enter runs where its name is not typed out. */
  get chosen() {
    return this.shown[this.at] ?? null;
  }

  choose({ name, usage }) {
    this.take(`/${name}${usage ? " " : ""}`);
  }

  draw() {
    this.node.hidden = !this.shown.length;
    this.node.replaceChildren(...this.shown.map((command, at) => this.option(command, at)));
    if (this.shown.length) this.box.setAttribute("aria-activedescendant", `command-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  option(command, at) {
    const { name, usage, help } = command;
    const made = element("li", [element("b", [`/${name} `]), element("span", [usage], "soft"), element("span", [help], "soft")]);
    made.id = `command-${at}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", String(at === this.at));
    made.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the box keeps the focus
      this.choose(command);
    });
    return made;
  }
}
