// A stream of the server that is taken up again where it broke, for as long as it is wanted.

import { ask, wordsOf } from "./api.js";
import { events } from "./sse.js";

const RETRY_MS = [250, 500, 1000, 2000, 5000];

/**
 * Reads a stream until `wanted()` is false or `signal` ends it. `place()` is the path and the headers to go on with;
 * `hear(event)` gets each event. `say(words)` tells what the connection does, "" where all is well. Resolves to the
 * error with which the server refused the stream, if it did.
 */
export async function follow({ place, hear, wanted, say, signal }) {
  let failures = 0;
  while (wanted()) {
    try {
      const [path, headers] = place();
      const response = await ask(path, { headers, signal });
      say("");
      for await (const event of events(response.body)) {
        if (event.event === "error") break; // the server stops; another will go on
        failures = 0;
        await hear(event);
        if (!wanted()) break;
      }
      if (response.status === 204) await hear({ event: "missed", data: "{}", id: "" });
    } catch (error) {
      if (signal?.aborted) return null;
      if (error.status && error.status < 500) {
        say(wordsOf(error));
        return error;
      }
    }
    if (!wanted() || signal?.aborted) break;
    say("Connection lost. Reconnecting…");
    await backoff(failures++, signal);
  }
  return null;
}

export function backoff(failures, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, RETRY_MS[failures] ?? RETRY_MS.at(-1));
    signal?.addEventListener("abort", resolve, { once: true });
  });
}
