// Code in colours, line by line: a line costs its length, whatever stands before it. Each pattern of `languages.js`
// either fails at its first characters or consumes what it has read, so that no line is read twice.

import { element } from "../dom.js";
import { languageNamed } from "./languages.js";

const MAX_LINE = 2000; // a longer one was not written by hand: it stays plain
const MAX_LINES = 10_000;

export class Highlighter {
  constructor(name) {
    this.language = languageNamed(name);
    this.inside = null; // a comment or a string that goes on in the next line
    this.lines = 0;
  }

  /** The nodes of the next line. */
  line(text) {
    this.lines += 1;
    const { parts, inside } = this.read(text);
    this.inside = inside;
    return parts;
  }

  /** The same for a line that is not whole yet. */
  preview(text) {
    return this.read(text).parts;
  }

  read(text) {
    if (!this.language || text.length > MAX_LINE || this.lines > MAX_LINES) {
      return { parts: text ? [text] : [], inside: null };
    }
    const tokens = tokensOf(this.language, text, this.inside);
    return { parts: nodesOf(tokens.found), inside: tokens.inside };
  }
}

function nodesOf(tokens) {
  const nodes = [];
  for (const [kind, text] of tokens) {
    if (kind) nodes.push(element("span", [text], `t-${kind}`));
    else if (typeof nodes.at(-1) === "string") nodes[nodes.length - 1] += text;
    else nodes.push(text);
  }
  return nodes;
}

/** The tokens of a line, [kind, text] in order, and what goes on in the next line. */
export function tokensOf(language, line, inside = null) {
  const found = [];
  let at = 0;
  if (inside) {
    at = endOf(inside, line, 0);
    found.push([inside.kind, line.slice(0, at < 0 ? line.length : at)]);
    if (at < 0) return { found, inside };
  } else if (language.whole) {
    const kind = language.whole(line);
    if (kind) return { found: [[kind, line]], inside: null };
  }
  const pattern = language.pattern;
  for (;;) {
    pattern.lastIndex = at;
    const match = pattern.exec(line);
    if (!match) break;
    if (match.index > at) found.push(["", line.slice(at, match.index)]);
    const start = match.index;
    const long = language.opening(match);
    if (long) {
      at = endOf(long, line, start + match[0].length);
      found.push([long.kind, line.slice(start, at < 0 ? line.length : at)]);
      if (at < 0) return { found, inside: long };
      continue;
    }
    at = start + match[0].length;
    found.push([language.kindOf(match, line, at), match[0]]);
  }
  if (at < line.length) found.push(["", line.slice(at)]);
  return { found, inside: null };
}

/** Where what began before `from` ends; -1: not in this line. */
function endOf(long, line, from) {
  let place = line.indexOf(long.close, from);
  if (!long.escapes) return place < 0 ? -1 : place + long.close.length;
  let at = from;
  while (place >= 0) {
    for (; at < place; at++) if (line[at] === "\\") at++; // what is escaped does not end it
    if (at === place) return place + long.close.length;
    place = line.indexOf(long.close, at);
  }
  return -1;
}
