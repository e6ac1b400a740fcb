// A run as the server has it: its timeline and its events.

import { ask } from "../net/api.js";
import { saveFile } from "../net/save_file.js";
import { events } from "../net/sse.js";

const path = (id, rest) => `/runs/${encodeURIComponent(id)}/${rest}`;

export async function loadTimeline(id, { thinking }) {
  return (await ask(path(id, `timeline?reasoning=${thinking}`))).json();
}

/** Follows the run's log from after `seq` on. `hear(events)` gets what has come together. Returns once the run has ended,
 *  or the connection. */
export async function followEvents(id, seq, { thinking, signal }, hear) {
  const response = await ask(path(id, `stream?reasoning=${thinking}&after=${seq}`), { signal });
  let batch = [];
  let due = false;
  const flush = () => {
    due = false;
    if (batch.length) hear(batch.splice(0));
  };
  try {
    for await (const { event, data } of events(response.body)) {
      if (event === "error") break; // the server stops
      batch.push(JSON.parse(data));
      if (due) continue;
      due = true;
      setTimeout(flush, 100);
    }
  } finally {
    flush();
  }
}

/** Saves the run as a file that needs nothing else. */
export async function saveExport(id, { thinking }) {
  const response = await ask(path(id, `export?reasoning=${thinking}`));
  saveFile(await response.blob(), `${id}.html`);
}
