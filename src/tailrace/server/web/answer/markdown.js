// Markdown to DOM nodes, block by block. A growing text costs what is new: blocks that have ended are never looked at
// again, and of the open one only its last row, item, line of code or paragraph is made anew.

import { CodeBlock } from "./code/code_block.js";
import { element, fill, make } from "./dom.js";
import { inline } from "./inline.js";

// Every pattern here takes linear time, also where it does not match: no two repetitions side by side can match the same
// characters, and what is cut off the ends is trimmed, not matched.
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s)([^]*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?=\s)([^]*)$/;
const QUOTE = /^ {0,3}>\s?/;
const TASK = /^\[([ xX])\](?=\s)/;
const DIVIDER_CELL = /^:?-+:?$/;
const MATH_ENDS = { "\\[": "\\]", $$: "$$" };

// A browser lays out a paragraph as a whole each time that it grows: a longer one goes on as the next.
const MAX_TEXT = 6000;
const MAX_DEPTH = 16; // of quotes and lists within each other; deeper ones stay as they were written

/** A text that grows, shown in `target`. `add` takes what is new, `draw` shows it. */
export class GrowingMarkdown {
  constructor(target) {
    this.target = target;
    this.clear();
  }

  clear() {
    this.open = null; // the block that may go on
    this.line = ""; // the last line, which has no end yet
    this.ended = []; // blocks that have ended since the last `draw`
    this.settled = 0; // nodes that stay as they are
    this.known = []; // the blocks of the nodes after those
    this.target.replaceChildren();
  }

  add(piece) {
    const lines = piece.split("\n");
    lines[0] = this.line + lines[0];
    this.line = lines.pop();
    for (const line of lines) this.open = takeLine(this.open, line, this.ended);
    const [open, rest] = takeLong(this.open, this.line, this.ended);
    this.open = open;
    this.line = rest;
  }

  draw() {
    const last = []; // as if the text ended here
    const open = takeLine(this.open, this.line, last);
    const blocks = [...this.ended, ...last, ...sources(open)].map(withoutBlankEnd);
    update(this.target, this.settled, this.known, blocks, 0);
    this.settled += this.ended.length;
    this.known = blocks.slice(this.ended.length);
    this.ended = [];
  }
}

/** Shows `text` in `target`, keeping the nodes of blocks that are as they were. The first `first` nodes are not its. */
export function render(target, text, depth = 0, first = 0) {
  const blocks = split(text);
  update(target, first, target.blocks ?? [], blocks, depth);
  target.blocks = blocks;
}

/** Makes the nodes from the place `first` on those of `blocks`; they are those of `known` now. */
function update(target, first, known, blocks, depth) {
  const common = Math.min(known.length, blocks.length);
  let same = 0;
  while (same < common && known[same] === blocks[same]) same++;
  if (same < common && grow(target.childNodes[first + same], blocks[same], depth)) same++;
  while (target.childNodes.length > first + same) target.lastChild.remove();
  for (const block of blocks.slice(same)) target.append(node(block, depth));
}

// ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

/** The sources of the blocks, in order. A fence that is still open goes to the end of the text. */
export function split(text) {
  const blocks = [];
  let open = null;
  for (const line of text.split("\n")) open = takeLine(open, line, blocks);
  return [...blocks, ...sources(open)].map(withoutBlankEnd);
}

/** The block that is open after this line; those that end with it are added to `ended`. */
function takeLine(open, line, ended) {
  const [before, rest] = takeLong(open, line, ended);
  const next = step(before, rest);
  ended.push(...next.ended);
  return next.open;
}

/** Takes what is too long for one line as lines of its own, outside of code; returns the open block and the rest. */
function takeLong(open, line, ended) {
  let rest = line;
  while (rest.length > MAX_TEXT && !open?.end) {
    const blank = rest.lastIndexOf(" ", MAX_TEXT);
    const cut = blank > MAX_TEXT / 2 ? blank + 1 : MAX_TEXT;
    const next = step(open, rest.slice(0, cut));
    ended.push(...next.ended);
    open = next.open;
    rest = rest.slice(cut);
  }
  return [open, rest];
}

/**
 * What a line makes of the open block: the blocks that end with it, and the one that is open then. Changes nothing, so
 * that a line can be tried before it is whole. `open` has its `kind`, its `source`, and what decides how it goes on:
 * `end` (of a fence or of mathematics), `numbered` (of a list), `before` and `last` (of a text: its last line may be
 * the head of a table), `blank` (of a list: its last line is blank).
 */
function step(open, line) {
  if (open?.end) return stepInside(open, line);
  const kind = kindOf(line);
  if (kind === "blank") {
    if (open?.kind !== "list") return { ended: sources(open), open: null };
    return { ended: [], open: { ...open, source: `${open.source}\n${line}`, blank: true } }; // an item may go on after it
  }
  if (open?.kind === "text" && isHead(open.last, line)) {
    const table = { kind: "table", source: `${open.last}\n${line}` };
    return { ended: open.before === null ? [] : [open.before], open: table };
  }
  if (open && goesOn(open, kind, line)) {
    const source = `${open.source}\n${line}`;
    return { ended: [], open: { ...open, source, before: open.source, last: line, blank: false } };
  }
  if (kind === "heading" || kind === "rule") return { ended: [...sources(open), line], open: null };
  const begun = { kind, source: line, before: null, last: line, end: endMark(kind, line), numbered: isNumbered(line) };
  return { ended: sources(open), open: begun };
}

function stepInside(open, line) {
  const grown = { ...open, source: `${open.source}\n${line}` };
  const text = line.trim();
  const last =
    open.kind === "fence"
      ? text.startsWith(open.end) && !text.slice(open.end.length).replaceAll(open.end[0], "")
      : text.includes(open.end) || !text;
  return last ? { ended: [grown.source], open: null } : { ended: [], open: grown };
}

const sources = (open) => (open ? [open.source] : []);

function kindOf(line) {
  if (!line.trim()) return "blank";
  if (FENCE.test(line)) return "fence";
  if (HEADING.test(line)) return "heading";
  if (RULE.test(line)) return "rule";
  if (QUOTE.test(line)) return "quote";
  if (ITEM.test(line)) return "list";
  return mathEnd(line) ? "math" : "text";
}

function endMark(kind, line) {
  if (kind === "fence") return FENCE.exec(line)[1];
  return kind === "math" ? mathEnd(line) : "";
}

/** Of a line that begins mathematics and does not end it: what will. */
function mathEnd(line) {
  const text = line.trim();
  const end = MATH_ENDS[text.slice(0, 2)];
  return end && !text.includes(end, 2) ? end : "";
}

function goesOn(open, kind, line) {
  if (open.kind === "list") {
    if (kind === "list") return [null, open.numbered].includes(isNumbered(line));
    return /^\s/.test(line) || (kind === "text" && !open.blank);
  }
  if (open.kind === "table") return kind === "text" && line.includes("|");
  if (open.kind === "quote") return kind === "quote" || kind === "text";
  return kind === open.kind && kind === "text" && open.source.length + line.length < MAX_TEXT;
}

/** Of an item that is not within another: whether its list counts. */
function isNumbered(line) {
  const item = ITEM.exec(line);
  return item && item[1].length < 2 ? /\d/.test(item[2]) : null;
}

function isDivider(line) {
  return line.includes("|") && rowOf(line).every((cell) => DIVIDER_CELL.test(cell.trim()));
}

function withoutBlankEnd(block) {
  let end = block.length;
  while (end && block[end - 1] === "\n") end--;
  return end === block.length ? block : block.slice(0, end);
}

// ── the nodes of a block ─────────────────────────────────────────────────────────────────────────────────────

function firstLine(block) {
  const end = block.indexOf("\n");
  return end < 0 ? block : block.slice(0, end);
}

function shapeOf(block) {
  const first = firstLine(block);
  const kind = kindOf(first);
  if (kind !== "text" || first === block) return kind;
  return isHead(first, firstLine(block.slice(first.length + 1))) ? "table" : kind;
}

function node(block, depth) {
  if (depth > MAX_DEPTH) return element("p", [block]);
  const shape = shapeOf(block);
  const made = BUILDERS[shape](block, depth);
  made.shape = shape;
  return made;
}

/** Changes a node into that of a longer block, where it can be; the new node is the same as a fresh one. */
function grow(known, block, depth) {
  if (depth > MAX_DEPTH || known.shape !== shapeOf(block)) return false;
  return GROWERS[known.shape]?.(known, block, depth) ?? false;
}

const BUILDERS = {
  fence: (block) => showCode(new CodeBlock(), block).node,
  heading: (block) => {
    const [, marks, rest] = HEADING.exec(block);
    return element(`h${Math.min(6, marks.length + 1)}`, inline(headingText(rest)));
  },
  rule: () => element("hr", []),
  quote: (block, depth) => showQuote(directed("blockquote"), block, depth),
  list: (block, depth) => {
    const marker = ITEM.exec(firstLine(block))[2];
    const made = directed(/\d/.test(marker) ? "ol" : "ul");
    if (/\d/.test(marker) && parseInt(marker, 10) !== 1) made.setAttribute("start", String(parseInt(marker, 10)));
    return showItems(made, block, depth + 1);
  },
  math: (block) => element("p", [block], "math"),
  table: (block) => showTable(make("div", "table"), block),
  text: (block) => element("p", inline(block)),
  blank: (block) => element("p", [block]),
};

const GROWERS = {
  fence: (known, block) => Boolean(showCode(known.code, block)),
  quote: (known, block, depth) => Boolean(showQuote(known, block, depth)),
  list: (known, block, depth) => Boolean(showItems(known, block, depth + 1)),
  table: (known, block) => Boolean(showTable(known, block)),
  text: (known, block) => {
    fill(known, inline(block));
    return true;
  },
};

/** Its marks stand where its first letter begins. */
function directed(tag) {
  const made = make(tag);
  made.dir = "auto";
  return made;
}

/** The text of a heading: blanks around it and the marks that close it are not part of it. */
function headingText(rest) {
  const text = rest.trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end--;
  return end && !/\s/.test(text[end - 1]) ? text : text.slice(0, end).trimEnd();
}

function showCode(code, block) {
  const first = firstLine(block);
  const [, mark, info] = FENCE.exec(first);
  const start = first.length + 1;
  let end = block.lastIndexOf("\n"); // of what stands before the last line
  const closed = end >= 0 && stepInside({ kind: "fence", end: mark, source: "" }, block.slice(end + 1)).open === null;
  if (!closed) end = block.length;
  code.show(info.trim().split(/\s/)[0], block.slice(start, Math.max(start, end)));
  return code;
}

function showQuote(target, block, depth) {
  const inside = block.split("\n").map((line) => line.replace(QUOTE, ""));
  render(target, inside.join("\n"), depth + 1);
  return target;
}

/** Items with what is indented under them; each is a small document of its own. */
function showItems(target, block, depth) {
  const items = itemsOf(block);
  const known = target.items ?? [];
  const common = Math.min(known.length, items.length);
  let same = 0;
  while (same < common && known[same] === items[same]) same++;
  if (same < common && showItem(target.childNodes[same], items[same], depth)) same++;
  while (target.childNodes.length > same) target.lastChild.remove();
  for (const item of items.slice(same)) {
    const made = make("li");
    target.append(made);
    showItem(made, item, depth);
  }
  target.items = items;
  return target;
}

function itemsOf(block) {
  const lines = block.split("\n");
  const [, indent, marker] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) items.push([item[3].trimStart()]);
    else items.at(-1).push(line.slice(Math.min(line.search(/\S|$/), indent.length + marker.length + 1)));
  }
  return items.map((item) => item.join("\n"));
}

/** Whether the item could be shown in this node: one that turns out to be a task needs another. */
function showItem(item, source, depth) {
  const task = TASK.exec(source);
  if (item.blocks && item.task !== task?.[1]) return false;
  if (task && !item.blocks) {
    item.className = "task";
    item.task = task[1];
    item.append(taskBox(task[1] !== " "));
  }
  render(item, task ? source.slice(task[0].length).trimStart() : source, depth, task ? 1 : 0);
  return true;
}

function taskBox(done) {
  const box = element("span", [done ? "☑" : "☐"], "box");
  box.setAttribute("role", "checkbox");
  box.setAttribute("aria-checked", String(done));
  box.setAttribute("aria-disabled", "true");
  box.setAttribute("aria-label", done ? "done" : "to do");
  return box;
}

/** Of a table: a line with as many cells as the divider below it. */
function isHead(line, divider) {
  return line.includes("|") && isDivider(divider) && rowOf(line).length === rowOf(divider).length;
}

const LONG_CELL = 24; // characters; a sentence beside other columns is not squeezed to one word in a line

/** A box of its own, in which a wide table scrolls. What a row has beyond the columns stands in its last cell. */
function showTable(box, block) {
  const [head, divider, ...rows] = block.split("\n");
  const sides = rowOf(divider).map((cell) => sideOf(cell.trim()));
  if (box.head !== head || box.divider !== divider) {
    Object.assign(box, { head, divider, rows: [], body: make("tbody") });
    fill(box, [element("table", [element("thead", [rowNode("th", head, sides)]), box.body])]);
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "group"); // no landmark: an answer may have many
    box.setAttribute("aria-label", "Table");
  }
  let same = 0;
  while (same < rows.length && box.rows[same] === rows[same]) same++;
  while (box.body.childNodes.length > same) box.body.lastChild.remove();
  for (const row of rows.slice(same)) box.body.append(rowNode("td", row, sides));
  box.rows = rows;
  return box;
}

function rowNode(tag, line, sides) {
  return element(
    "tr",
    inColumns(rowOf(line), sides.length).map((cell, at) => {
      const long = cell.length > LONG_CELL && "long";
      return element(tag, inline(cell.replaceAll("\\|", "|")), [sides[at], long].filter(Boolean).join(" "));
    }),
  );
}

/** The cells for so many columns, and no more; a row that is being written may have fewer. */
function inColumns(cells, columns) {
  const last = columns - 1;
  let end = cells.length;
  while (end > columns && !cells[end - 1].trim()) end--;
  const kept = end > last ? [...cells.slice(0, last), cells.slice(last, end).join("|")] : cells;
  return kept.map((cell) => cell.trim());
}

function rowOf(line) {
  const text = line.trim();
  const cells = text.split(/(?<!\\)\|/);
  if (cells.length > 1 && !cells[0]) cells.shift();
  if (cells.length > 1 && !cells.at(-1)) cells.pop();
  return cells;
}

function sideOf(cell) {
  if (!cell.endsWith(":")) return "";
  return cell.startsWith(":") ? "center" : "right";
}
