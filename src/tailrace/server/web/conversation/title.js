// The name of the tab: what the conversation is, and what happens in it.

/** `running`: an answer is written; `waits`: an approval is asked for. */
export function tellTitle({ title = "", running = false, waits = false }) {
  const name = title ? `${shortened(title)} · Tailrace` : "Tailrace";
  document.title = waits ? `Approval needed · ${name}` : running ? `● ${name}` : name;
}

function shortened(title) {
  const line = title.replace(/\s+/g, " ").trim();
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
