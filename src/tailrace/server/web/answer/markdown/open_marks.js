// The end of a text that is still being written: marks that are open there are read as if they were closed, and a mark
// that may become anything is not shown before it is known.

const RULE_START = /(^|\n)[ \t]*(?:[-=]+|#{1,6}|[-+*]|\d{1,9}[.)]|>|\|)[ \t]*$/;
const TASK_START = /((?:^|\n)[ \t>]*(?:[-+*]|\d{1,9}[.)])[ \t]+)\[[ xX]?\]?$/;
const ADDRESS_START = /((?:^|\n)[ \t>]*)\[(?!\^)[^\]\n]+\]:[ \t]*\S*$/; // of what a name in brackets leads to
const MARKS_AT_END = /(^|[^\\])(?:[*_~`]+|!?\[|\\)$/;
const ROW = /^\s*\|/;
const MAX_COLUMNS = 100;
const DIVIDER = /^[\s|:-]*$/;
const MAX_OPEN = 50; // marks; each is a node within the one before

/** The text without what its last line only begins, and a table's head with the line that makes it one. `from`: the first
 * line that was changed or may change. */
export function heldBack(text) {
  const lastLine = text.lastIndexOf("\n") + 1;
  const from = text.slice(0, lastLine).split("\n").length - 1;
  const table = withDivider(text.split("\n"));
  if (table) return { text: table, from: Math.max(0, from - 1) };
  const isFence = isInFence(text);
  if (isFence) return { text: text.replace(/\n[ \t]*(?:`+|~+)$/, "\n"), from };
  const shown = text.replace(TASK_START, "$1").replace(RULE_START, "$1").replace(ADDRESS_START, "$1");
  return { text: shown.replace(MARKS_AT_END, "$1"), from };
}

/** Where the last lines are the head of a table, and what there is of its divider: the lines with a whole divider. */
function withDivider(lines) {
  while (lines.length > 1 && !lines.at(-1)) lines.pop();
  const last = lines.at(-1);
  const before = lines.at(-2) ?? "";
  if (ROW.test(before) && !ROW.test(lines.at(-3) ?? "") && DIVIDER.test(last) && /^\s*[|:-]/.test(last)) lines.pop();
  else if (!ROW.test(last) || ROW.test(before)) return "";
  const head = lines.at(-1);
  if (/^\s*\|\s*$/.test(head)) return "";
  if (isInFence(lines.slice(0, -1).join("\n"))) return "";
  const cells = head.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/);
  return cells.length > MAX_COLUMNS ? "" : `${lines.join("\n")}\n|${cells.map(() => " --- |").join("")}`;
}

function isInFence(text) {
  let mark = "";
  for (const [, fence, info] of text.matchAll(/^[ \t]*(?:>[ \t]*|[-+*][ \t]+|\d{1,9}[.)][ \t]+)*(`{3,}|~{3,})(.*)$/gm)) {
    if (!mark) mark = info.includes("`") ? "" : fence;
    else if (fence[0] === mark[0] && fence.length >= mark.length && !info.trim()) mark = "";
  }
  return Boolean(mark);
}

// ── rules for markdown-it ───────────────────────────────────────────────────────────────────────────────────

/** A code span that has no end yet. */
export function readOpenCode(state, silent) {
  const { src, pos, env } = state;
  if (!env.isLast || src[pos] !== "`" || state.level > 100) return false;
  let start = pos;
  while (src[start] === "`") start++;
  const mark = src.slice(pos, start);
  state.openRuns ??= new Map();
  if (!state.openRuns.has(mark)) state.openRuns.set(mark, lastRun(src, mark));
  if (state.openRuns.get(mark) >= start) return false;
  if (!silent) Object.assign(state.push("code_inline", "code", 0), { content: src.slice(start).trimStart(), markup: mark });
  state.pos = state.posMax;
  return true;
}

/** Where the last run of exactly these backticks begins. */
function lastRun(src, mark) {
  let end = src.length;
  for (;;) {
    const at = src.lastIndexOf(mark, end - mark.length);
    if (at < 0) return -1;
    let first = at;
    while (src[first - 1] === "`") first--;
    if (at + mark.length - first === mark.length && src[at + mark.length] !== "`") return first;
    if (first === 0) return -1;
    end = first;
  }
}

const OPEN_LINK = /!?\[([^\[\]\n]{0,1000})(?:\](?:\([^()\s]{0,2000}(?:\s[^()\n]{0,500})?)?)?$/y;

/** A link whose address is not whole: its words alone. */
export function readOpenLink(state, silent) {
  const { src, pos, env } = state;
  if (!env.isLast || !/[![]/.test(src[pos]) || src.length - pos > 3600) return false;
  OPEN_LINK.lastIndex = pos;
  const found = OPEN_LINK.exec(src);
  if (!found || (found[0].endsWith("]") && !found[0].startsWith("!"))) return false; // brackets alone are text
  const end = state.posMax;
  if (silent) {
    state.pos = end;
    return true;
  }
  state.pos = src.indexOf("[", pos) + 1;
  state.posMax = state.pos + found[1].length;
  state.md.inline.tokenize(state);
  state.pos = state.posMax = end;
  return true;
}

/** After the marks were paired: emphasis that is open at the end is closed there. */
export function closeOpenMarks(state) {
  if (!state.env.isLast) return;
  const { delimiters } = state;
  const count = delimiters.length;
  for (let at = count - 1; at >= 0 && delimiters.length < count + MAX_OPEN; at--) {
    const mark = delimiters[at];
    if (mark.end !== -1 || !mark.open || isWithinWord(state, at)) continue;
    const token = state.push("text", "", 0);
    token.content = state.tokens[mark.token].content;
    delimiters.push({ ...mark, token: state.tokens.length - 1, end: -1, open: false, close: true });
    mark.end = delimiters.length - 1;
  }
}

/** `2*3` is no emphasis that begins. */
function isWithinWord({ tokens, delimiters }, at) {
  const { token, marker, close } = delimiters[at];
  return close && marker === 0x2a && /\w$/.test(tokens[token - 1]?.content ?? "");
}
