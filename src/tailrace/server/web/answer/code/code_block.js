// A block of code: its language, a button that copies it, and the code in highlight.js's colours. Code that grows costs
// what is new: lines stand in groups, and a group that is whole is neither read nor laid out again.

import { highlighter } from "../../vendor/highlight.js";
import { iconButton } from "../../icons.js";
import { copyText } from "../copy.js";
import { element, fill, make } from "../dom.js";
import { purified } from "../markdown/purified.js";

const GROUP_LINES = 40; // then the next line that begins at the margin begins a group
const MAX_GROUP_LINES = 120;
const MAX_LINE = 2000; // characters; a longer one was not written by hand: it stays plain
const MAX_SHOWN_NAME = 40;

export class CodeBlock {
  constructor() {
    this.language = null;
    this.body = "";
    this.label = make("span", "language");
    this.code = make("code");
    const copy = iconButton("copy", "Copy code", (pressed) => copyText(this.body, pressed));
    const shown = element("pre", [this.code]);
    shown.setAttribute("tabindex", "0"); // it scrolls: the keyboard has to reach it
    this.node = element("div", [element("div", [this.label, copy], "code-head"), shown], "code");
  }

  /** Shows this code; cheap where it begins with what is shown. */
  show(language, body) {
    if (language === this.language && body === this.body) return;
    if (language !== this.language || !body.startsWith(this.body.slice(0, this.start))) this.begin(language);
    this.body = body;
    const rest = body.slice(this.start);
    let lines = rest.split("\n");
    for (let end = groupEnd(lines); end; end = groupEnd(lines)) {
      const text = `${lines.slice(0, end).join("\n")}\n`;
      this.paint(text);
      this.start += text.length;
      this.group = element("span", [], "lines");
      this.code.append(this.group);
      lines = lines.slice(end);
    }
    this.paint(lines.join("\n"));
  }

  begin(language) {
    this.language = language;
    this.known = highlighter.getLanguage(language) ? language : "";
    this.start = 0; // of the group that is open
    this.label.textContent = language.slice(0, MAX_SHOWN_NAME);
    if (language) this.code.dataset.language = language;
    this.group = element("span", [], "lines");
    fill(this.code, [this.group]);
  }

  paint(text) {
    const isPlain = !this.known || text.split("\n").some((line) => line.length > MAX_LINE);
    if (isPlain) this.group.textContent = text;
    else this.group.replaceChildren(purified(highlighter.highlight(text, { language: this.known, ignoreIllegals: true }).value));
  }
}

/** How many of these lines are a group that nothing is added to; 0 where they may go on. */
function groupEnd(lines) {
  if (lines.length <= GROUP_LINES) return 0;
  const margin = lines.findIndex((line, at) => at >= GROUP_LINES && at < lines.length - 1 && /^[^\s})\]]/.test(line));
  const end = margin < 0 ? MAX_GROUP_LINES : Math.min(margin, MAX_GROUP_LINES);
  return end < lines.length ? end : 0;
}

/** The language of a file, by the end of its name. */
export function languageOfFile(path) {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
}
