// The list of everything that waits, kept up to date by the server.

import { ask } from "../net/api.js";
import { events } from "../net/sse.js";
import { learn } from "./server_clock.js";

const RETRY_MS = [500, 1000, 2000, 5000, 10000];

/**
 * Calls `hear(questions)` with the list now and whenever it changes. A hidden tab is told only where `wanted()` says so:
 * a browser has few connections to one server, and every tab would hold one.
 */
export class InboxFeed {
  constructor(hear, wanted) {
    this.hear = hear;
    this.wanted = wanted;
    this.connection = null;
    this.refused = false;
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
    for (let failures = 0; !connection.signal.aborted && !this.refused; failures++) {
      try {
        const response = await ask("/approvals/stream", { signal: connection.signal });
        for await (const event of events(response.body)) {
          if (event.event !== "approvals") break; // the server stops; another will go on
          failures = 0;
          const list = JSON.parse(event.data);
          learn(list);
          this.hear(list.data);
        }
      } catch (error) {
        this.refused = Boolean(error.status && error.status < 500);
      }
      if (!connection.signal.aborted && !this.refused) await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    }
    if (this.connection === connection) this.connection = null;
    this.check();
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
