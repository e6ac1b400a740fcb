// The server as the page talks to it: requests with the key, errors in the server's own words.

import { askForKey, forgetKey, keptKey } from "./key.js";
import { tellReached, UNREACHED } from "./reached.js";

const MAX_NAME = 256; // characters

/** fetch with the key, which is asked for when the server wants one. Rejects with the server's own words. */
export async function ask(path, options = {}) {
  for (;;) {
    const headers = new Headers(options.headers);
    const key = keptKey();
    if (key) headers.set("Authorization", `Bearer ${key}`);
    const response = await fetch(path, { ...options, headers });
    if (response.status < 500) tellReached();
    if (response.ok) return response;
    const error = (await response.json().catch(() => null))?.error;
    const useless = response.status === 403 && error?.details?.scope === "runs"; // it opens nothing of the page
    if (response.status === 401 || useless) {
      const refusal = useless ? "This page needs a key with the scope runs." : "This key was refused.";
      if (key === keptKey()) forgetKey(); // else another request has asked for a new one meanwhile
      if (!keptKey()) await askForKey(key ? refusal : "");
      continue;
    }
    const words = error?.message ?? `the server answered ${response.status}`;
    throw Object.assign(new Error(words), { status: response.status });
  }
}

/** The JSON that is found at the path. */
export const read = async (path, options) => (await ask(path, options)).json();

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** What to tell of a request that failed. */
export const wordsOf = (error) => (error.status ? error.message : UNREACHED);

/** Whether a conversation, a run or an instance may have this name: by the rules of the server, and of a path in an address. */
export const isName = (name) => [...name].length <= MAX_NAME && !/^\.{0,2}$|[\x00-\x1f\x7f]/.test(name);

/** A name that no one else will think of: of a session, or of a request that may be sent twice. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
