// Markdown as models write it, read by markdown-it: no HTML, images as links, formulas apart from the text, tasks.

import { markdownIt } from "../../vendor/markdown-it.js";
import { closeOpenMarks, readOpenCode, readOpenLink } from "./open_marks.js";

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const FOOTNOTE = /\[\^(\d{1,3}|[a-z])(\]|$)/y;
const LINE_BREAK = /<br {0,9}\/?>/iy;
const TASK = /^\[([ xX])\](?=\s|$)/;
const LONG_CELL = 24; // characters; a sentence beside other columns is not squeezed to one word in a line
const MAX_PARAGRAPH = 6000; // characters; a browser lays out a paragraph as a whole each time that it grows

const md = markdownIt({ html: false, linkify: true });
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
md.disable("lheading"); // a rule below a text is a rule
md.validateLink = (address) => SAFE_LINK.test(address.trim());

/** The tokens of a text. `env` keeps what later parts of the same text refer to; `env.open`: the text may go on, and marks
 * that are open at its end are read as if they were closed there. */
export const tokensOf = (text, env) => md.parse(text, env);

/** The HTML of an inline token: that of the last reading, where its text is the same. */
export function inlineHtml(token, env) {
  const html = token.meta || md.renderer.renderInline(token.children, md.options, env);
  if (!token.isLast) env.known.set(token.content, html);
  return html;
}

// ── the open end of a text ──────────────────────────────────────────────────────────────────────────────────

md.core.ruler.at("inline", ({ tokens, env }) => {
  const last = tokens.findLast(({ nesting, type, content }) => nesting === 0 && (type !== "inline" || content));
  const names = Object.keys(env.references ?? {}).length; // a new one may make a link of what was none
  const known = names === env.names ? env.known : new Map();
  Object.assign(env, { names, known: new Map() });
  for (const token of tokens) {
    if (token.type !== "inline") continue;
    env.isLast = token.isLast = Boolean(env.open) && token === last;
    token.meta = env.isLast ? null : known.get(token.content);
    if (!token.meta) md.inline.parse(token.content, md, env, token.children);
  }
});
md.inline.ruler.before("backticks", "open_code", readOpenCode);
md.inline.ruler.before("link", "open_link", readOpenLink);
md.inline.ruler2.after("balance_pairs", "open_marks", closeOpenMarks);

// ── what is not of CommonMark ───────────────────────────────────────────────────────────────────────────────

md.inline.ruler.before("autolink", "line_break", (state, silent) => {
  LINE_BREAK.lastIndex = state.pos;
  if (!LINE_BREAK.test(state.src)) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos = LINE_BREAK.lastIndex;
  return true;
});

/** A footnote and its mark, `[^1]` and `[^1]: …`, stay where they were written. */
md.inline.ruler.before("open_link", "footnote", (state, silent) => {
  FOOTNOTE.lastIndex = state.pos;
  const found = FOOTNOTE.exec(state.src);
  if (!found || (!found[2] && !state.env.isLast)) return false;
  const beginsLine = !state.pos || state.src[state.pos - 1] === "\n";
  if (!silent && beginsLine && state.pos) state.push("hardbreak", "br", 0);
  if (!silent) state.push("footnote", "span", 0).content = found[1];
  state.pos += found[0].length + (beginsLine && state.src[state.pos + found[0].length] === ":" ? 1 : 0);
  return true;
});

const MATH_ENDS = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };

/** `\(…\)`, `\[…\]`, `$$…$$`, and `$…$` where neither end touches a blank and no figure follows: prices are no formulas. */
md.inline.ruler.before("escape", "math", (state, silent) => {
  const { src, pos } = state;
  const open = MATH_ENDS[src.slice(pos, pos + 2)] ? src.slice(pos, pos + 2) : src[pos] === "$" ? "$" : "";
  const start = pos + open.length;
  if (!open || (open === "$" && /[\s$]|^$/.test(src[start] ?? ""))) return false;
  const end = endOfMath(state, MATH_ENDS[open] ?? "$", start + 1);
  if (end < 0) return false;
  if (!silent) Object.assign(state.push("math", "", 0), { content: src.slice(start, end), markup: open });
  state.pos = end + (open === "$" ? 1 : 2);
  return true;
});

/** Each kind of end is looked for once, from left to right: opening marks that are never closed cost one search together. */
function endOfMath(state, mark, from) {
  const ends = (state.mathEnds ??= {});
  const known = ends[mark] ?? 0;
  if (known < 0 || known >= from) return known;
  let place = state.src.indexOf(mark, from);
  if (mark === "$") while (place >= 0 && !closesDollar(state.src, place)) place = state.src.indexOf(mark, place + 1);
  ends[mark] = place;
  return place;
}

const closesDollar = (src, at) => !/[\s\\$]/.test(src[at - 1]) && !/[\d$]/.test(src[at + 1] ?? " ");

/** A formula of its own lines. One that is not closed yet goes to the end of the text. */
md.block.ruler.before("fence", "math_block", (state, startLine, endLine, silent) => {
  const lineOf = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const first = lineOf(startLine).trim();
  const end = { "\\[": "\\]", $$: "$$" }[first.slice(0, 2)];
  if (!end || state.sCount[startLine] - state.blkIndent >= 4) return false;
  if (first.includes(end, 2) && !first.endsWith(end)) return false; // text follows it
  const lines = [first.slice(2)];
  let line = startLine;
  while (!lines.at(-1).trimEnd().endsWith(end)) {
    line += 1;
    if (line >= endLine || !lineOf(line).trim() || lines.length > 200) break;
    lines.push(lineOf(line));
  }
  const isClosed = lines.at(-1).trimEnd().endsWith(end);
  if (!isClosed && !(state.env.open && line >= endLine)) return false;
  if (silent) return true;
  const source = lines.join("\n").trimEnd();
  state.line = Math.min(line + 1, endLine);
  const token = state.push("math_block", "p", 0);
  Object.assign(token, { block: true, map: [startLine, state.line], meta: { isClosed } });
  token.content = (isClosed ? source.slice(0, -2) : source).trim();
  return true;
}, { alt: ["paragraph", "reference", "blockquote", "list"] });

/** What the blocks are beyond their kind: headings below the page's own, sides of columns, tasks. */
md.core.ruler.before("inline", "shapes", (state) => {
  state.tokens.forEach((token, at) => {
    if (/^heading_/.test(token.type)) token.tag = `h${Math.min(6, Number(token.tag[1]) + 1)}`;
    else if (/^t[hd]_open$/.test(token.type)) shapeCell(token, state.tokens[at + 1]);
    else if (token.type === "list_item_open") shapeTask(token, state.tokens[at + 2]);
  });
});

/** A very long paragraph is several ones, before it is read. */
md.core.ruler.before("inline", "cut_paragraphs", (state) => {
  state.tokens = state.tokens.flatMap((token, at) => {
    const inline = state.tokens[at + 1];
    return token.type === "paragraph_open" && inline.content.length > MAX_PARAGRAPH ? cut(state, token, inline) : token;
  });
});

function shapeCell(cell, inline) {
  const side = /right|center/.exec(cell.attrGet("style") ?? "")?.[0];
  const long = inline.content.length > LONG_CELL && "long";
  cell.attrs = null; // the page allows no style of its own
  const classes = [side, long].filter(Boolean).join(" ");
  if (classes) cell.attrSet("class", classes);
}

function shapeTask(item, inline) {
  const task = inline?.type === "inline" && TASK.exec(inline.content);
  if (!task) return;
  inline.content = inline.content.slice(task[0].length).trimStart();
  item.attrSet("class", "task");
  item.meta = { isDone: task[1] !== " " };
}

/** The parts of a paragraph before the last one, which is `token` and `inline` themselves. */
function cut(state, token, inline) {
  const parts = [];
  while (inline.content.length > MAX_PARAGRAPH) {
    const blank = inline.content.lastIndexOf(" ", MAX_PARAGRAPH);
    const end = blank > MAX_PARAGRAPH / 2 ? blank + 1 : MAX_PARAGRAPH;
    const { map, hidden } = token;
    const part = Object.assign(new state.Token("inline", "", 0), { content: inline.content.slice(0, end), children: [] });
    const open = Object.assign(new state.Token("paragraph_open", "p", 1), { map, hidden });
    parts.push(open, part, new state.Token("paragraph_close", "p", -1));
    inline.content = inline.content.slice(end);
  }
  return [...parts, token];
}

// ── what the renderer makes of it ───────────────────────────────────────────────────────────────────────────

const escape = md.utils.escapeHtml;
const LINK = 'rel="noopener noreferrer nofollow" target="_blank"';

md.renderer.rules.math = ([...tokens], at) => {
  const { content, markup } = tokens[at];
  const isDisplay = ["$$", "\\["].includes(markup);
  return `<span class="math" data-display="${isDisplay}">${escape(content)}</span>`;
};
md.renderer.rules.footnote = (tokens, at) => `<span class="footnote">${escape(tokens[at].content)}</span>`;
md.renderer.rules.link_open = (tokens, at) => `<a href="${escape(tokens[at].attrGet("href"))}" ${LINK}>`;
/** A page that loads what a model names would tell its address who is reading: an image is a link that shows where to. */
md.renderer.rules.image = (tokens, at) => {
  const { content } = tokens[at];
  const address = escape(tokens[at].attrGet("src"));
  const shown = content ? `${escape(content)} <span class="address">${address}</span>` : address;
  return `<a href="${address}" class="image" ${LINK}>${shown}</a>`;
};
