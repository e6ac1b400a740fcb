// The API key: asked for once, kept for the tab, or in this browser where the person wants it.

const byId = (id) => document.getElementById(id);
const KEY = "tailrace.key";

export const keptKey = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

export function forgetKey() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

let asking = null;

/** Resolves once a key was given. `refusal`: why the one before was not enough. Several requests may wait for the same
 * question. */
export function askForKey(refusal) {
  if (refusal) byId("key-refused").textContent = refusal;
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    dialog.showModal();
    byId("key").focus();
    dialog.addEventListener(
      "close",
      () => {
        const key = byId("key").value.trim();
        if (key) (byId("key-remember").checked ? localStorage : sessionStorage).setItem(KEY, key);
        byId("key").value = "";
        byId("key-refused").textContent = "";
        asking = null;
        byId("message").focus();
        resolve();
      },
      { once: true },
    );
  });
  return asking;
}
