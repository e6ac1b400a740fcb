// A block of code: its language, a button that copies it, and the code in colours. Code that grows costs what is new: a
// line that has ended is read once, and lines stand in groups so that the browser lays out the last group alone.

import { copyText } from "../copy.js";
import { button, element, fill, make } from "../dom.js";
import { Highlighter } from "./highlight.js";

const LINES_IN_GROUP = 50;
const MAX_SHOWN_NAME = 40;

export class CodeBlock {
  constructor() {
    this.language = null;
    this.body = "";
    this.label = make("span", "language");
    this.code = make("code");
    const copy = button("Copy", (pressed) => copyText(this.body, pressed), "quiet");
    copy.setAttribute("aria-label", "Copy code");
    const shown = element("pre", [this.code]);
    shown.setAttribute("tabindex", "0"); // it scrolls: the keyboard has to reach it
    this.node = element("div", [element("div", [this.label, copy], "code-head"), shown], "code");
    this.node.code = this;
  }

  /** Shows this code; cheap where it begins with what is shown. */
  show(language, body) {
    if (language !== this.language) this.begin(language);
    const goesOn = body.startsWith(this.read) && (!this.lines || body.length === this.read.length || body[this.read.length] === "\n");
    if (!goesOn) this.begin(language);
    this.body = body;
    if (this.lines && body.length === this.read.length) {
      this.tail.replaceChildren(); // what looked like a line was the mark that ends the code
      return;
    }
    const rest = (this.lines ? body.slice(this.read.length + 1) : body).split("\n");
    const last = rest.pop();
    for (const line of rest) this.addLine(line);
    const end = body.length - last.length - 1;
    if (rest.length) this.read = body.slice(0, end);
    fill(this.tail, [...this.lineEnd(), ...this.highlighter.preview(last)]);
  }

  begin(language) {
    this.language = language;
    this.read = ""; // the lines that have ended, without the end of the last
    this.lines = 0;
    this.highlighter = new Highlighter(language);
    this.label.textContent = language.slice(0, MAX_SHOWN_NAME);
    if (language) this.code.dataset.language = language;
    this.tail = make("span");
    this.group = element("span", [this.tail], "lines");
    fill(this.code, [this.group]);
  }

  addLine(line) {
    const nodes = [...this.lineEnd(), ...this.highlighter.line(line)];
    if (this.lines && this.lines % LINES_IN_GROUP === 0) {
      this.group = make("span", "lines");
      this.code.append(this.group);
      this.group.append(this.tail);
    }
    for (const node of nodes) this.tail.before(node);
    this.lines += 1;
  }

  /** What separates the next line from the one before. */
  lineEnd() {
    return this.lines ? ["\n"] : [];
  }
}
