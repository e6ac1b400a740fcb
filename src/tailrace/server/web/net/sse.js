// Server-sent events from a fetch body: EventSource cannot send a key.

/** The events of a stream as they come: {event, data, id}. Comments keep it alive and are not seen. */
export async function* events(body) {
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (reader) {
      const { value, done } = await reader.read();
      if (done) return; // an event that was not ended is dropped, as the specification has it
      rest += value;
      const blocks = rest.split(/\r\n\r\n|\n\n|\r\r/);
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } finally {
    reader?.cancel().catch(() => {});
  }
}

function parse(block) {
  const event = { event: "message", id: "", data: null };
  for (const line of block.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
    else if (field === "event") event.event = value;
    else if (field === "id") event.id = value;
  }
  return event.data === null ? null : event;
}
