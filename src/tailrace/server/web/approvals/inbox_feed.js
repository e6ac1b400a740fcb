// The list of everything that waits, kept up to date by the server.

import { ask } from "../net/api.js";
import { backoff } from "../net/follow.js";
import { events } from "../net/sse.js";
import { withStreamSlot } from "../net/with_stream_slot.js";
import { learn } from "./server_clock.js";

/**
 * Calls `hear(questions)` with the list now and whenever it changes. A hidden tab is told only where `wanted()` says so:
 * a browser has few connections to one server. For the same reason one tab alone holds the stream, and tells the others
 * to look again.
 */
export class InboxFeed {
  constructor(hear, wanted) {
    this.hear = hear;
    this.wanted = wanted;
    this.connection = null;
    this.refused = false;
    this.others = new BroadcastChannel("tailrace.inbox"); // tabs have keys of their own: each reads its own list
    this.others.addEventListener("message", () => this.connection && this.look());
  }

  start() {
    document.addEventListener("visibilitychange", () => this.check());
    this.check();
  }

  /** Connects or disconnects, as the tab and the user want it now. */
  check() {
    const open = !this.refused && (!document.hidden || this.wanted());
    if (open && !this.connection) this.follow();
    else if (!open) this.connection?.abort();
  }

  async follow() {
    const connection = new AbortController();
    this.connection = connection;
    this.look(); // until this tab has the slot for the stream
    await withStreamSlot("inbox", connection.signal, (signal) => this.read(signal));
    if (this.connection === connection) this.connection = null;
    this.check();
  }

  /** The list now, for a tab that is told of changes by the one that holds the stream. */
  async look() {
    const list = await ask("/approvals").then((answer) => answer.json(), () => null);
    if (list) this.take(list);
  }

  take(list) {
    learn(list);
    this.hear(list.data);
  }

  async read(signal) {
    for (let failures = 0; !signal.aborted && !this.refused; failures++) {
      try {
        const response = await ask("/approvals/stream", { signal });
        for await (const event of events(response.body)) {
          if (event.event !== "approvals") break; // the server stops; another will go on
          failures = 0;
          this.take(JSON.parse(event.data));
          this.others.postMessage("changed");
        }
      } catch (error) {
        this.refused = Boolean(error.status && error.status < 500);
      }
      if (!signal.aborted && !this.refused) await backoff(failures, signal);
    }
  }
}
