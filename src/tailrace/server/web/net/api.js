// The server as the page talks to it: requests with the key, errors in the server's own words.

const byId = (id) => document.getElementById(id);
const KEY = "tailrace.key";

/** fetch with the key, which is asked for when the server wants one. Rejects with the server's own words. */
export async function ask(path, options = {}) {
  for (;;) {
    const headers = new Headers(options.headers);
    const key = sessionStorage.getItem(KEY);
    if (key) headers.set("Authorization", `Bearer ${key}`);
    const response = await fetch(path, { ...options, headers });
    if (response.status === 401) {
      sessionStorage.removeItem(KEY);
      await askForKey();
      continue;
    }
    if (!response.ok) throw Object.assign(new Error(await reason(response)), { status: response.status });
    return response;
  }
}

async function reason(response) {
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `the server answered ${response.status}`;
}

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

let asking = null;
function askForKey() {
  const dialog = byId("key-dialog");
  asking ??= new Promise((resolve) => {
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => {
        const key = byId("key").value.trim();
        if (key) sessionStorage.setItem(KEY, key);
        byId("key").value = "";
        asking = null;
        resolve();
      },
      { once: true },
    );
  });
  return asking;
}

/** A name that no one else will think of: of a session, or of a request that may be sent twice. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
