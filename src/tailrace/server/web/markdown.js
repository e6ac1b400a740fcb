// Markdown to DOM nodes, block by block. What a model writes is only ever the text of a node: nothing here parses
// HTML, and a link leads to http, https or mailto or is no link. A growing text is parsed anew, but only the blocks
// that changed are rebuilt: with a stream, that is the last one.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
// A span is bounded, so that marks that are never closed cost a bounded search each.
// In order of precedence: an escape, code, a link or an image, a bare address, strong, emphasis, struck out.
const INLINE =
  /\\([\\`*_{}[\]()#+\-.!~>|])|(`+)([^]{0,2000}?[^`])\2(?!`)|!?\[([^\]\n]{0,1000})\]\(([^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"]*")?\)|(https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]])|(\*\*|__)(?=\S)([^]{0,2000}?\S)\7|(?<![\w*])(\*|_)(?=\S)([^]{0,2000}?\S)\9(?![\w*])|~~(?=\S)([^]{0,2000}?\S)~~/g;

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
  return blocks.map((block) => block.replace(/\n+$/, ""));
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
  if (heading) return element(`h${Math.min(6, heading[1].length + 1)}`, inline(heading[2]));
  if (RULE.test(first)) return element("hr", []);
  if (QUOTE.test(first)) return quote(lines, depth + 1);
  if (ITEM.test(first)) return list(lines, depth + 1);
  if (lines.length > 1 && first.includes("|") && DIVIDER.test(lines[1])) return table(lines);
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
    if (item && item[1].length <= depth + 1) items.push([item[3]]);
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
  if (depth > MAX_DEPTH) return [text];
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    parts.push(span(found, depth + 1));
    at = found.index + found[0].length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

function span([whole, escaped, , literal, label, address, bare, , strong, , emphasis, struck], depth) {
  if (escaped !== undefined) return escaped;
  if (literal !== undefined) return element("code", [literal.trim() || literal]);
  if (address !== undefined) return link(address, label || address, whole);
  if (bare !== undefined) return link(bare, bare, whole);
  if (strong !== undefined) return element("strong", inline(strong, depth));
  if (emphasis !== undefined) return element("em", inline(emphasis, depth));
  return element("s", inline(struck, depth));
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
  made.append(...children);
  return made;
}
