// What a call that writes changes in a file: the lines of it, and how many come and go.

/**
 * { lines, added, removed } of a call of `patch` or `write_file`; null where that is not known. What was recorded of the
 * call says it best; what a patch will do is in its arguments too.
 */
export function changeOf(name, args, outcome = null) {
  const recorded = outcome?.change;
  if (recorded) {
    const { added = 0, removed = 0, diff = "" } = recorded;
    const lines = diff ? diff.split("\n") : [];
    if (lines.at(-1) === " ") lines.pop(); // what follows the last line end is no line
    return { lines, added, removed };
  }
  if (name !== "patch" || typeof args?.old !== "string" || typeof args.new !== "string") return null;
  return change(replacedLines(args.old, args.new));
}

function change(lines) {
  const count = (mark) => lines.reduce((sum, line) => sum + (line[0] === mark ? 1 : 0), 0);
  return { lines, added: count("+"), removed: count("-") };
}

/** The lines that differ; equal ones before and after them stand around them. */
function replacedLines(old, next) {
  const before = linesOf(old);
  const after = linesOf(next);
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start++;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const marked = (lines, mark) => lines.map((line) => mark + line);
  return [
    ...marked(before.slice(0, start), " "),
    ...marked(before.slice(start, before.length - end), "-"),
    ...marked(after.slice(start, after.length - end), "+"),
    ...marked(before.slice(before.length - end), " "),
  ];
}

function linesOf(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
