// That the server is there again, for words on the screen that say that it is not.

export const UNREACHED = "The server cannot be reached.";
const READ_MS = 3000; // what was said can be read for so long

const lost = []; // callbacks that wait for an answer of the server

/** The server has answered a request. */
export function tellReached() {
  for (const found of lost.splice(0)) found();
}

/** Calls `takeBack` once the server has answered another request, and there was time to read what is taken back. */
export function onceReached(takeBack) {
  const said = Date.now();
  lost.push(() => setTimeout(takeBack, Math.max(0, said + READ_MS - Date.now())));
}

/** Whether a request failed because the server is not there, or is about to end: another one may not. */
export const isUnreached = (error) => !error.status || error.status >= 500;

/** Says in `node` why nothing was done; `unreached` are the words where no answer came. They go once the server is there. */
export function tellRefusal(node, error, unreached = UNREACHED) {
  const words = error.status ? error.message : unreached;
  node.textContent = words;
  if (isUnreached(error)) onceReached(() => node.textContent === words && (node.textContent = ""));
}
