// A browser has six connections to one server. The streams of tabs in the background share three of them, so that the
// tab that is looked at can ask, and another one be opened. Where the browser has no locks, each stream has its own.

const PLACES = [0, 1, 2].map((number) => `tailrace.background.${number}`);

/** Resolves to whether this tab has a place now: it is held until `signal` ends. */
export async function hasPlace(signal) {
  if (!navigator.locks) return true;
  for (const name of PLACES) if (await request(name, { ifAvailable: true }, signal)) return true;
  return false;
}

/** Resolves to true once a place was free, which is held until `signal` ends; to false where `signal` ended before. */
export function placeInTurn(signal) {
  const waiting = new AbortController();
  signal.addEventListener("abort", () => waiting.abort(), { once: true });
  const wanted = PLACES.map((name) => request(name, { signal: waiting.signal }, signal, () => waiting.abort()));
  return Promise.race(wanted);
}

/** `taken()` is called with the place in hand; a place that comes after that is given back. */
function request(name, options, signal, taken = () => {}) {
  return new Promise((resolve) => {
    const hold = (lock) => {
      const held = Boolean(lock) && !signal.aborted && !options.signal?.aborted;
      resolve(held);
      if (!held) return undefined;
      taken();
      return new Promise((release) => signal.addEventListener("abort", release, { once: true }));
    };
    navigator.locks.request(name, options, hold).catch(() => resolve(false));
  });
}
