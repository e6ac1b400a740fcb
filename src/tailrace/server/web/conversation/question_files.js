// A question and the text files that were sent with it: in its text, and apart from it on the screen.

import { element } from "../answer/dom.js";

// A text file stands in the question as this block, after what the person wrote.
const BLOCK = /\n\n<file name="([^"\n]*)">\n[\s\S]*?\n<\/file>(?=\n\n<file name="|$)/g;

/** What the person wrote, and the names of the files below it. */
export function filesOf(question) {
  const files = [];
  const text = question.replace(BLOCK, (_, name) => {
    files.push(name);
    return "";
  });
  return { text, files };
}

/** A question without its files, as a name; the name of a conversation may end within a file. */
export const titleOf = (title) => title.replace(/\s*<file name="[\s\S]*$/, "");

/** The names of files, below a question. */
export const fileChips = (files) =>
  element("span", files.map((name) => element("span", [name], "chip")), "question-files");
