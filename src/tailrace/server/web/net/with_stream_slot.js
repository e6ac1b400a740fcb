// A stream of this window, held while the window has a slot for it. A browser opens six connections to one server, for all
// of its windows together: those that would need more share slots, each going on where it was. A browser without shared
// workers, or one that refuses them, lets each window have its own.

const held = new Map(); // id → {pool, runs, granted, give}: what waits for a slot or has it
let ids = 0;
let port = null;
let listening = false;
let away = null; // while the browser keeps this page for Back, out of sight: what ends when it is shown again
let comeBack = () => {};

/**
 * Calls `hold(signal)` when this window has a slot, and again with its next one where the slot was taken back; until
 * `hold` returns by itself, or the caller's `signal` ends. Resolves to what `hold` resolves to. `runs()`: something runs
 * in this window, which then goes before others; `tellState` tells when that has changed.
 */
export async function withStreamSlot(pool, signal, hold, runs = () => true) {
  connect();
  for (;;) {
    await away;
    const id = ++ids;
    const slot = new AbortController();
    try {
      await granted({ pool, runs }, id, slot, signal);
      const result = signal.aborted ? null : await hold(AbortSignal.any([signal, slot.signal]));
      if (signal.aborted || !slot.signal.aborted) return result;
    } finally {
      slot.abort(); // nothing stays on the caller's signal
      held.delete(id);
      tell("leave", id, { pool, runs });
    }
  }
}

/** Something has begun or ended in this window, or it is looked at. */
export const tellState = () => each((stream, id) => tell("show", id, stream));

function granted(stream, id, slot, signal) {
  return new Promise((resolve) => {
    const give = () => {
      slot.abort();
      resolve(); // it may wait still, where the page was put away meanwhile
    };
    held.set(id, { ...stream, granted: resolve, give });
    signal.addEventListener("abort", resolve, { once: true, signal: slot.signal });
    if (signal.aborted || !port) resolve();
    else tell("want", id, stream);
  });
}

/** The list that one window reads for all may be read by a hidden one as well. */
const isBehind = (pool) => pool === "stream" && document.hidden;

const tell = (what, id, { pool, runs }) => port?.postMessage({ what, id, pool, hidden: isBehind(pool), runs: runs() });

const each = (act) => [...held].forEach(([id, stream]) => act(stream, id));

/** A page that is left may be kept, whole, for Back. Its streams would keep connections that no page uses. */
function leave() {
  away ??= new Promise((resolve) => {
    comeBack = resolve;
  });
  each((stream, id) => {
    tell("leave", id, stream); // now: nothing runs here a moment later
    stream.give();
  });
}

function enter() {
  comeBack();
  away = null;
}

/** Connects to the shared worker that gives the slots; a no-op where there are no shared workers. */
function connect() {
  if (listening) return;
  listening = true;
  globalThis.addEventListener?.("pagehide", leave);
  globalThis.addEventListener?.("pageshow", enter);
  const worker = globalThis.SharedWorker ? startWorker() : null;
  if (!worker) return;
  worker.addEventListener("error", () => {
    port = null; // it cannot be loaded: no stream has to wait
    each((stream) => stream.granted());
  });
  port = worker.port;
  port.addEventListener("message", ({ data: { said, id } }) => held.get(id)?.[said]());
  port.start();
  document.addEventListener("visibilitychange", tellState);
}

/** Null where the browser refuses one: Firefox does where cookies are blocked for the site. */
function startWorker() {
  try {
    return new SharedWorker("/web/net/stream_slots_worker.js", { type: "module", name: "tailrace" });
  } catch {
    return null;
  }
}
