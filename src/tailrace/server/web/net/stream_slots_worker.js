// The one place where all windows of a browser ask for a stream slot: a SharedWorker, which ends with the last of them.
// It has no key and talks to no server.

import { StreamSlots } from "./stream_slots.js";

const INBOX_MS = 30_000; // one window reads the list for all: another one takes over where that has crashed
const pools = { stream: new StreamSlots(), inbox: new StreamSlots(1, INBOX_MS) };
const ports = new Map(); // id of a stream → the port of its window
const timers = {};
let windows = 0;

addEventListener("connect", ({ ports: [port] }) => {
  const name = ++windows;
  port.addEventListener("message", ({ data }) => hear(port, name, data));
  port.start();
});

/** `id` is the window's own: it is made one of all windows here. */
function hear(port, name, { what, pool, id, hidden, runs }) {
  const slots = pools[pool];
  const stream = `${name}:${id}`;
  if (what === "want") {
    ports.set(stream, (said) => port.postMessage({ said, id }));
    slots.want(stream, hidden, runs);
  } else if (what === "show") slots.show(stream, hidden, runs);
  else {
    slots.leave(stream);
    ports.delete(stream);
  }
  settle(pool);
}

function settle(pool) {
  clearTimeout(timers[pool]);
  const { granted, asked, gone, next } = pools[pool].due(performance.now()); // a clock on the wall may be set back
  for (const stream of gone) ports.delete(stream);
  for (const stream of granted) ports.get(stream)("granted");
  for (const stream of asked) ports.get(stream)("give");
  if (next !== null) timers[pool] = setTimeout(() => settle(pool), Math.max(0, next - performance.now()));
}
