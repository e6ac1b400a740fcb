// A file that the page hands to the browser to be saved.

/** `content`: a text or a blob. */
export function saveFile(content, name, type = "text/csv") {
  const file = content instanceof Blob ? content : new Blob([content], { type });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
