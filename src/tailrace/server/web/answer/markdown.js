// Markdown to DOM nodes, block by block. What a model writes is only ever the text of a node: nothing here parses
// HTML, and a link leads to http, https or mailto or is no link. A growing text is parsed anew, but only the blocks
// that changed are rebuilt: with a stream, that is the last one.

// Every pattern here takes linear time, also where it does not match: no two repetitions side by side can match the same
// characters, and what is cut off the ends is trimmed, not matched. The marks inside a text are found by `InlineScanner`.
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s)([^]*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?=\s)([^]*)$/;
const QUOTE = /^ {0,3}>\s?/;
const DIVIDER_CELL = /^:?-+:?$/;
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const MARK = /[\\`![*_~]|https?:\/\//g; // where a span may begin
const ESCAPED = "\\`*_{}[]()#+-.!~>|";
const ADDRESS = /\(([^\s()]{0,2000}(?:\([^\s()]{0,2000}\)[^\s()]{0,2000}){0,9})(?:\s{1,9}"[^"]{0,500}")?\)/y;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`]+/y;
const MAX_LABEL = 1000;

const MAX_DEPTH = 16; // of quotes, lists and spans within each other; deeper ones stay as they were written

/** Shows `text` in `target`, keeping the nodes of blocks that are as they were. */
export function render(target, text, depth = 0) {
  const blocks = split(text);
  const known = target.blocks ?? [];
  let same = 0;
  while (same < blocks.length && known[same] === blocks[same]) same++;
  while (target.childNodes.length > same) target.lastChild.remove();
  for (const block of blocks.slice(same)) target.append(node(block, depth));
  target.blocks = blocks;
}

/** The sources of the blocks, in order. A fence that is still open goes to the end of the text. */
export function split(text) {
  const blocks = [];
  let lines = [];
  let kind = "";
  let fence = "";
  let numbered = false; // the list that is open
  const close = () => {
    if (lines.length) blocks.push(lines.join("\n"));
    lines = [];
    kind = "";
  };
  for (const line of text.split("\n")) {
    if (fence) {
      lines.push(line);
      if (line.trim().startsWith(fence) && !line.trim().slice(fence.length).replaceAll(fence[0], "")) {
        fence = "";
        close();
      }
      continue;
    }
    const opened = FENCE.exec(line);
    const found = opened ? "fence" : kindOf(line);
    if (found === "blank") {
      if (kind === "list") lines.push(line); // an item may go on after it
      else close();
    } else if (goesOn(kind, found, line, numbered)) {
      lines.push(line);
    } else {
      close();
      lines.push(line);
      kind = found;
      if (found === "list") numbered = isNumbered(line);
      if (opened) fence = opened[1];
      else if (found === "heading" || found === "rule") close();
    }
  }
  close();
  return blocks.map(withoutBlankEnd);
}

function withoutBlankEnd(block) {
  let end = block.length;
  while (end && block[end - 1] === "\n") end--;
  return block.slice(0, end);
}

/** The text of a heading: blanks around it and the marks that close it are not part of it. */
function headingText(rest) {
  const text = rest.trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end--;
  return end && !/\s/.test(text[end - 1]) ? text : text.slice(0, end).trimEnd();
}

function isDivider(line) {
  const cells = line.trim().split("|");
  if (cells.length > 1 && !cells[0]) cells.shift();
  if (cells.length > 1 && !cells.at(-1)) cells.pop();
  return cells.every((cell) => DIVIDER_CELL.test(cell.trim()));
}

function goesOn(kind, found, line, numbered) {
  if (kind === "list" && found === "list") return [null, numbered].includes(isNumbered(line));
  return found === kind || (kind === "list" && /^\s+\S/.test(line)) || (kind === "quote" && found === "text");
}

/** Of an item that is not within another: whether its list counts. */
function isNumbered(line) {
  const item = ITEM.exec(line);
  return item && item[1].length < 2 ? /\d/.test(item[2]) : null;
}

function kindOf(line) {
  if (!line.trim()) return "blank";
  if (HEADING.test(line)) return "heading";
  if (RULE.test(line)) return "rule";
  if (QUOTE.test(line)) return "quote";
  if (ITEM.test(line)) return "list";
  return "text";
}

function node(block, depth) {
  if (depth > MAX_DEPTH) return element("p", [block]);
  const lines = block.split("\n");
  const first = lines[0];
  const fence = FENCE.exec(first);
  if (fence) return code(lines, fence);
  const heading = HEADING.exec(first);
  if (heading) return element(`h${Math.min(6, heading[1].length + 1)}`, inline(headingText(heading[2])));
  if (RULE.test(first)) return element("hr", []);
  if (QUOTE.test(first)) return quote(lines, depth + 1);
  if (ITEM.test(first)) return list(lines, depth + 1);
  if (lines.length > 1 && first.includes("|") && isDivider(lines[1])) return table(lines);
  return element("p", inline(block));
}

function code(lines, fence) {
  const last = lines.at(-1).trim();
  const closed = lines.length > 1 && last.startsWith(fence[1]);
  const inner = element("code", [lines.slice(1, closed ? -1 : undefined).join("\n")]);
  const language = fence[2].trim().split(/\s/)[0];
  if (language) inner.dataset.language = language;
  return element("pre", [inner]);
}

function quote(lines, depth) {
  const block = element("blockquote", []);
  render(block, lines.map((line) => line.replace(QUOTE, "")).join("\n"), depth);
  return block;
}

/** Items with what is indented under them; each is a small document of its own. */
function list(lines, nesting) {
  const depth = ITEM.exec(lines[0])[1].length;
  const marker = ITEM.exec(lines[0])[2];
  const ordered = /\d/.test(marker);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= depth + 1) items.push([item[3].trimStart()]);
    else items.at(-1).push(line.slice(Math.min(line.search(/\S|$/), depth + marker.length + 1)));
  }
  const made = element(ordered ? "ol" : "ul", items.map((item) => listItem(item, nesting)));
  if (ordered && parseInt(marker, 10) !== 1) made.setAttribute("start", String(parseInt(marker, 10)));
  return made;
}

function listItem(lines, depth) {
  const item = element("li", []);
  const blocks = split(lines.join("\n"));
  blocks.forEach((block, at) => {
    const made = node(block, depth);
    if (at === 0 && made.tagName === "P") item.append(...made.childNodes);
    else item.append(made);
  });
  return item;
}

function table(lines) {
  const cells = (line) =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim());
  const row = (tag, line) => element("tr", cells(line).map((cell) => element(tag, inline(cell))));
  const body = lines.slice(2).map((line) => row("td", line));
  return element("table", [element("thead", [row("th", lines[0])]), element("tbody", body)]);
}

function inline(text, depth = 0) {
  return depth > MAX_DEPTH ? [text] : new InlineScanner(text, depth).parts();
}

/**
 * The spans of one text. Each kind of closing mark is looked for once, from left to right: the place that was found for
 * one opening mark is kept for the next, so that marks that are never closed cost one search together.
 */
class InlineScanner {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.found = new Map(); // a closing mark -> where it was found last; -1: there is none from there on
    this.runs = null; // length of a run of backticks -> the places of such runs, and how many are behind us
  }

  parts() {
    const parts = [];
    let at = 0; // what stands before this is in `parts`
    let from = 0;
    for (;;) {
      MARK.lastIndex = from;
      const mark = MARK.exec(this.text);
      if (!mark) break;
      const span = this.span(mark[0], mark.index);
      if (!span.made) {
        from = span.end;
        continue;
      }
      if (mark.index > at) parts.push(this.text.slice(at, mark.index));
      parts.push(span.made);
      at = from = span.end;
    }
    if (at < this.text.length) parts.push(this.text.slice(at));
    return parts;
  }

  /** What begins here and where it ends; without `made`, nothing does and the search goes on at `end`. */
  span(mark, at) {
    const next = this.text[at + 1];
    if (mark === "\\") return next && ESCAPED.includes(next) ? { made: next, end: at + 2 } : { end: at + 1 };
    if (mark === "`") return this.code(at);
    if (mark === "[" || (mark === "!" && next === "[")) return this.linkAt(at, mark === "[" ? at : at + 1);
    if (mark.startsWith("http")) return this.bareLink(at);
    if (mark === "~") return next === "~" ? this.between("~~", "s", at) : { end: at + 1 };
    if (mark === "*" || mark === "_") {
      const strong = next === mark ? this.between(mark + mark, "strong", at) : {};
      return strong.made ? strong : this.emphasis(mark, at);
    }
    return { end: at + 1 };
  }

  code(at) {
    let end = at;
    while (this.text[end] === "`") end++;
    const runs = this.backtickRuns().get(end - at);
    while (runs.places[runs.seen] < end) runs.seen++;
    const close = runs.places[runs.seen];
    if (close === undefined) return { end };
    const literal = this.text.slice(end, close);
    return { made: element("code", [literal.trim() || literal]), end: close + end - at };
  }

  backtickRuns() {
    if (this.runs) return this.runs;
    this.runs = new Map();
    for (const { 0: run, index } of this.text.matchAll(/`+/g)) {
      if (!this.runs.has(run.length)) this.runs.set(run.length, { places: [], seen: 0 });
      this.runs.get(run.length).places.push(index);
    }
    return this.runs;
  }

  linkAt(at, bracket) {
    const nothing = { end: bracket + 1 };
    const close = this.next("]", bracket + 1);
    if (close < 0 || close - bracket > MAX_LABEL + 1) return nothing;
    const label = this.text.slice(bracket + 1, close);
    ADDRESS.lastIndex = close + 1;
    const address = label.includes("\n") ? null : ADDRESS.exec(this.text);
    if (!address) return nothing;
    const end = ADDRESS.lastIndex;
    return { made: link(address[1], label || address[1], this.text.slice(at, end)), end };
  }

  bareLink(at) {
    BARE_ADDRESS.lastIndex = at;
    const found = BARE_ADDRESS.exec(this.text)?.[0] ?? "";
    let length = found.length;
    while (length && ".,;:!?)]".includes(found[length - 1])) length--;
    const address = found.slice(0, length);
    if (!/^https?:\/\/[^]/.test(address)) return { end: at + 4 };
    return { made: link(address, address, address), end: at + length };
  }

  between(mark, tag, at) {
    const start = at + mark.length;
    const close = /\S/.test(this.text[start] ?? " ") ? this.next(mark, start + 1) : -1;
    if (close < 0) return { end: start };
    return { made: element(tag, inline(this.text.slice(start, close), this.depth + 1)), end: close + mark.length };
  }

  emphasis(mark, at) {
    const before = this.text[at - 1] ?? " ";
    const opens = !/[\w*]/.test(before) && /\S/.test(this.text[at + 1] ?? " ");
    const close = opens ? this.next(mark, at + 2) : -1;
    if (close < 0) return { end: at + 1 };
    return { made: element("em", inline(this.text.slice(at + 1, close), this.depth + 1)), end: close + 1 };
  }

  /** The first place from `from` on where this mark closes something; -1 where there is none. */
  next(mark, from) {
    let place = this.found.get(mark) ?? 0;
    if (place < 0 || place >= from) return place;
    place = this.text.indexOf(mark, from);
    while (place >= 0 && !this.closes(mark, place)) place = this.text.indexOf(mark, place + 1);
    this.found.set(mark, place);
    return place;
  }

  closes(mark, place) {
    if (mark === "]") return true;
    if (/\s/.test(this.text[place - 1])) return false;
    return mark.length === 2 || !/[\w*]/.test(this.text[place + 1] ?? " ");
  }
}

/** Images are links too: a page that loads what a model names would tell its address who is reading. */
function link(address, label, whole) {
  if (!SAFE_LINK.test(address)) return whole;
  const made = element("a", [label]);
  made.setAttribute("href", address);
  made.setAttribute("rel", "noopener noreferrer nofollow");
  made.setAttribute("target", "_blank");
  return made;
}

function element(tag, children) {
  const made = document.createElement(tag);
  for (const child of children) made.append(child); // one by one: a call takes only so many arguments
  return made;
}
