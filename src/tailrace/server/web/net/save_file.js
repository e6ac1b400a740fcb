// A file that the page hands to the browser to be saved.

/** A line for each row under a line of `names`. A text that a spreadsheet would carry out as a formula stays a text. */
export function csvOf(names, rows) {
  const field = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  const lines = rows.map((row) => names.map((name) => (typeof row[name] === "number" ? row[name] : field(row[name]))));
  return [names, ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}

/** `content`: a text or a blob. */
export function saveFile(content, name, type = "text/csv") {
  const file = content instanceof Blob ? content : new Blob([content], { type });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
