// What stands in the place of a run or an instance that cannot be shown: why not, and the ways on from there.

import { element, link } from "./answer/dom.js";
import { wordsOf } from "./net/api.js";

const MAX_ID = 60; // characters of an address that are repeated

/** One line, as an alert; `kind` and `id` are what the address names. */
export function notShown(kind, id, error) {
  const isMissing = error.status === 404;
  const shown = id.length > MAX_ID ? `${id.slice(0, MAX_ID)}…` : id;
  const why = isMissing ? `There is no ${kind} “${shown}” here: it was deleted, or its address is wrong.` : wordsOf(error);
  if (isMissing) document.title = `No such ${kind} · Tailrace`;
  const ways = isMissing ? [] : [link("Try again", location.href), " · "];
  const line = element("p", [why, " ", ...ways, link("To the conversations", "/")], "not-shown");
  line.setAttribute("role", "alert");
  return line;
}

/** Links of the bar above a run or an instance: to the conversations, and to the table of the runs. */
export const waysBack = () => [link("Tailrace", "/", "home"), link("Runs", "/?runs", "way")];
