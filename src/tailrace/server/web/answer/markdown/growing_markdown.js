// Markdown on the screen, block by block. A growing text costs what is new: blocks that have ended are neither parsed nor
// drawn again, and of the open one only the nodes change whose text does.

import { CodeBlock } from "../code/code_block.js";
import { element, make } from "../dom.js";
import { showFormulas } from "./formula.js";
import { heldBack } from "./open_marks.js";
import { inlineHtml, tokensOf } from "./parser.js";
import { purified } from "./purified.js";

const GROUP_ROWS = 50; // a browser lays out anew only the groups of a table's rows that change
const MAX_BLANKS = 5000; // cells

/** A text that grows, shown in `target`. `add` takes what is new, `draw` shows it. */
export class GrowingMarkdown {
  constructor(target) {
    this.target = target;
    this.clear();
  }

  clear() {
    this.rest = ""; // what has not been drawn for good
    this.settled = 0; // nodes that stay as they are
    this.groups = 0; // of rows, in a table after those, that do too
    this.blanks = 0; // cells of them without a text
    this.env = {};
    this.target.replaceChildren();
  }

  add(piece) {
    this.rest += piece;
  }

  /** `isWhole`: nothing follows, and marks that are open at the end are text. */
  draw({ isWhole = false } = {}) {
    this.rest = this.rest.replace(/\r(?!\n|$)/g, "\n"); // lines are counted by their ends
    const { text, from } = isWhole ? { text: this.rest, from: Infinity } : heldBack(this.rest);
    const blocks = blocksOf(text, { env: this.env, open: !isWhole });
    if (this.groups) Object.assign(blocks[0], { first: 1 + this.groups, children: blocks[0].children.slice(1) });
    drawBlocks(this.target, this.settled, blocks);
    this.settle(blocks, from);
  }

  /** Blocks that are followed by another one have ended, where what follows cannot turn out to belong to them. */
  settle(blocks, from) {
    let count = 0;
    while (count + 1 < blocks.length && blocks[count + 1].line < from) count++;
    while (count && blocks[count].line === blocks[count - 1].line) count--; // parts of one paragraph
    if (!count) return this.settleRows(blocks[0]);
    this.settled += count;
    this.rest = this.rest.slice(startOf(blocks[count].line, this.rest));
    this.groups = this.blanks = 0;
  }

  /** Of a table that grows, the head is read again and the last rows, by which the next one is read. How many cells short
   * rows get has a limit in each text: a table of blanks is read as a whole. */
  settleRows({ tag, children } = {}) {
    const groups = tag === "table" ? children.filter((group) => group.tag === "tbody") : [];
    const ended = groups.slice(0, -2);
    for (const { html } of ended.flatMap((group) => group.children).flatMap((row) => row.children)) this.blanks += !html;
    if (!ended.length || this.blanks > MAX_BLANKS) return;
    this.groups += ended.length;
    const [first, kept] = [groups[0], groups.at(-2)].map(({ line }) => startOf(line, this.rest));
    this.rest = this.rest.slice(0, first) + this.rest.slice(kept);
  }
}

/** Shows the whole of `text` in `target`. */
export function drawMarkdown(target, text) {
  const growing = new GrowingMarkdown(target);
  growing.add(text);
  growing.draw({ isWhole: true });
}

function startOf(line, text) {
  let at = 0;
  while (line--) at = text.indexOf("\n", at) + 1;
  return at;
}

// ── blocks ──────────────────────────────────────────────────────────────────────────────────────────────────

/** The blocks of a text: { tag, attrs, line } with either `children` or the `html` of what is in it, or with `code`. */
function blocksOf(text, { env, open }) {
  env.open = open;
  const root = { children: [] };
  const path = [root];
  for (const token of tokensOf(text, env)) {
    if (token.nesting === -1) path.pop();
    else if (token.type === "inline") path.at(-1).html = inlineHtml(token, env);
    else {
      const block = blockOf(token);
      if (token.tag === "tr" && path.at(-1).children.length === GROUP_ROWS) {
        const group = { ...path.pop(), line: block.line, children: [] };
        path.at(-1).children.push(group);
        path.push(group);
      }
      path.at(-1).children.push(block);
      if (token.nesting === 1) path.push(block);
    }
  }
  return root.children;
}

function blockOf(token) {
  const block = { tag: token.tag, attrs: Object.fromEntries(token.attrs ?? []), line: token.map?.[0] ?? 0, children: [] };
  if (token.type === "fence" || token.type === "code_block") {
    block.code = { language: (token.info ?? "").trim().split(/\s/)[0], text: token.content.replace(/\n$/, "") };
  } else if (token.type === "math_block") {
    block.attrs = token.meta.isClosed ? { class: "math", "data-display": "true" } : { class: "math" };
    block.source = token.content;
  } else if (token.hidden) block.attrs = { class: "tight" }; // a paragraph of a list without blank lines
  else if (["ul", "ol", "blockquote"].includes(token.tag)) block.attrs.dir = "auto"; // its marks stand where its text begins
  block.isDone = token.meta?.isDone;
  block.first = Number(block.isDone !== undefined); // the place of its first child
  return block;
}

/** Makes the nodes from the place `first` on those of `blocks`. Nodes that are as they should be are not touched. */
function drawBlocks(target, first, blocks) {
  blocks.forEach((block, at) => {
    const node = target.children[first + at];
    if (node && refine(node, block)) return;
    const made = nodeOf(block);
    if (node) node.replaceWith(made);
    else target.append(made);
  });
  while (target.children.length > first + blocks.length) target.lastElementChild.remove();
}

function nodeOf(block) {
  if (block.code) {
    const code = new CodeBlock();
    code.node.code = code;
    return filled(code.node, block);
  }
  const node = make(block.tag);
  for (const [name, value] of Object.entries(block.attrs)) node.setAttribute(name, value);
  if (block.isDone !== undefined) node.append(taskBox(block.isDone));
  if (block.tag !== "table") return filled(node, block);
  const box = element("div", [node], "table"); // in which a wide table scrolls
  for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", "Table"]]) box.setAttribute(name, value);
  box.inner = node;
  return filled(box, block);
}

/** Whether the node could be made that of `block`. */
function refine(node, block) {
  const known = node.block;
  const isSame = known.tag === block.tag && known.isDone === block.isDone && !known.code === !block.code;
  if (!isSame || JSON.stringify(known.attrs) !== JSON.stringify(block.attrs)) return false;
  filled(node, block);
  return true;
}

function filled(node, block) {
  const known = node.block;
  node.block = block;
  if (block.code) node.code.show(block.code.language, block.code.text);
  else if (block.source !== undefined) {
    if (known?.source !== block.source) node.textContent = block.source;
    showFormulas(node);
  } else if (block.html !== undefined) {
    if ((known?.html ?? "") === block.html) return node;
    node.replaceChildren(purified(block.html));
    showFormulas(node);
  } else drawBlocks(node.inner ?? node, block.first, block.children);
  return node;
}

function taskBox(isDone) {
  const box = element("span", [isDone ? "☑" : "☐"], "box");
  box.setAttribute("role", "checkbox");
  box.setAttribute("aria-checked", String(isDone));
  box.setAttribute("aria-disabled", "true");
  box.setAttribute("aria-label", isDone ? "done" : "to do");
  return box;
}
