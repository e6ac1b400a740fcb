// The spans of a text: emphasis, code, links, mathematics. What is made is nodes and text, never HTML (J123), and a link
// leads to http, https or mailto or is no link.

import { element } from "./dom.js";

// Every pattern takes linear time, also where it does not match: no two repetitions side by side can match the same
// characters, and each repetition that may have to be given up is bounded.
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const MARK = /[\\`![*_~$<\n]|https?:\/\//g; // where a span may begin
const ESCAPED = "\\`*_{}#+-.!~>|$<";
const ADDRESS = /\(([^\s()]{0,2000}(?:\([^\s()]{0,2000}\)[^\s()]{0,2000}){0,9})(?:\s{1,9}"[^"]{0,500}")?\)/y;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`]+/y;
const ANGLE_ADDRESS = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const LINE_BREAK = /<br {0,9}\/?>/iy;
const MAX_LABEL = 1000;
const MAX_DEPTH = 16; // of spans within each other; deeper ones stay as they were written
const MATH_ENDS = { "(": "\\)", "[": "\\]" };

export function inline(text, depth = 0, linked = false) {
  return depth > MAX_DEPTH ? [text] : new InlineScanner(text, depth, linked).parts();
}

/**
 * The spans of one text. Each kind of closing mark is looked for once, from left to right: the place that was found for
 * one opening mark is kept for the next, so that marks that are never closed cost one search together. `linked`: the
 * text is a link already.
 */
class InlineScanner {
  constructor(text, depth, linked) {
    this.text = text;
    this.depth = depth;
    this.linked = linked;
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
    if (mark === "\\") return this.escape(next, at);
    if (mark === "`") return this.code(at);
    if (mark === "\n") return this.lineEnd(at);
    if (mark === "$") return this.dollars(next, at);
    if (mark === "<") return this.angle(at);
    if (mark === "[") return this.linkAt(at, at);
    if (mark === "!") return next === "[" ? this.linkAt(at, at + 1) : { end: at + 1 };
    if (mark.startsWith("http")) return this.bareLink(at);
    if (mark === "~") return next === "~" ? this.between("~~", "s", at) : { end: at + 1 };
    const strong = next === mark ? this.between(mark + mark, "strong", at) : {};
    return strong.made ? strong : this.emphasis(mark, at);
  }

  escape(next, at) {
    if (next === "\n") return { made: element("br", []), end: at + 2 };
    if (next && ESCAPED.includes(next)) return { made: next, end: at + 2 };
    const close = MATH_ENDS[next] ? this.next(MATH_ENDS[next], at + 2) : -1;
    return close < 0 ? { end: at + 1 } : this.math(at, close + 2);
  }

  /** `$$…$$`, and `$…$` where neither end touches a blank and no figure follows: prices are not mathematics. */
  dollars(next, at) {
    const mark = next === "$" ? "$$" : "$";
    const start = at + mark.length;
    const opens = mark === "$$" || /[^\s$]/.test(next ?? " ");
    const close = opens ? this.next(mark, start + 1) : -1;
    return close < 0 ? { end: start } : this.math(at, close + mark.length);
  }

  /** Left as it was written. */
  math(at, end) {
    return { made: element("span", [this.text.slice(at, end)], "math"), end };
  }

  lineEnd(at) {
    const hard = this.text[at - 1] === " " && this.text[at - 2] === " ";
    return hard ? { made: element("br", []), end: at + 1 } : { end: at + 1 };
  }

  angle(at) {
    LINE_BREAK.lastIndex = ANGLE_ADDRESS.lastIndex = at;
    if (LINE_BREAK.test(this.text)) return { made: element("br", []), end: LINE_BREAK.lastIndex };
    const address = this.linked ? null : ANGLE_ADDRESS.exec(this.text);
    if (!address) return { end: at + 1 };
    return { made: link(address[1], [address[1]], address[0]), end: at + address[0].length };
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
    const close = this.linked ? -1 : this.next("]", bracket + 1);
    if (close < 0 || close - bracket > MAX_LABEL + 1) return nothing;
    const label = this.text.slice(bracket + 1, close);
    ADDRESS.lastIndex = close + 1;
    const address = label.includes("\n") ? null : ADDRESS.exec(this.text);
    if (!address) return nothing;
    const end = ADDRESS.lastIndex;
    const whole = this.text.slice(at, end);
    if (bracket > at) return { made: image(address[1], label, whole), end };
    return { made: link(address[1], inline(label || address[1], this.depth + 1, true), whole), end };
  }

  bareLink(at) {
    BARE_ADDRESS.lastIndex = at;
    const found = this.linked ? "" : (BARE_ADDRESS.exec(this.text)?.[0] ?? "");
    let length = found.length;
    while (length && ".,;:!?)]*_~".includes(found[length - 1])) length--;
    const address = found.slice(0, length);
    if (!/^https?:\/\/[^]/.test(address)) return { end: at + 4 };
    return { made: link(address, [address], address), end: at + length };
  }

  between(mark, tag, at) {
    const start = at + mark.length;
    const close = /\S/.test(this.text[start] ?? " ") ? this.next(mark, start + 1) : -1;
    if (close < 0) return { end: start };
    const inner = inline(this.text.slice(start, close), this.depth + 1, this.linked);
    return { made: element(tag, inner), end: close + mark.length };
  }

  emphasis(mark, at) {
    const before = this.text[at - 1] ?? " ";
    const opens = !/[\w*]/.test(before) && /\S/.test(this.text[at + 1] ?? " ");
    const close = opens ? this.next(mark, at + 2) : -1;
    if (close < 0) return { end: at + 1 };
    const inner = inline(this.text.slice(at + 1, close), this.depth + 1, this.linked);
    return { made: element("em", inner), end: close + 1 };
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
    if (mark === "]" || mark === "$$" || mark[0] === "\\") return true;
    if (/\s/.test(this.text[place - 1])) return false;
    if (mark === "$") return !/[\d$]/.test(this.text[place + 1] ?? " ") && !"\\$".includes(this.text[place - 1]);
    return mark.length === 2 || !/[\w*]/.test(this.text[place + 1] ?? " ");
  }
}

/** A page that loads what a model names would tell its address who is reading: an image is a link that shows where to. */
function image(address, label, whole) {
  const shown = label ? [`${label} `, element("span", [address], "address")] : [address];
  return link(address, shown, whole, "image");
}

function link(address, label, whole, name = "") {
  if (!SAFE_LINK.test(address)) return whole;
  const made = element("a", label, name);
  made.setAttribute("href", address);
  made.setAttribute("rel", "noopener noreferrer nofollow");
  made.setAttribute("target", "_blank");
  return made;
}
