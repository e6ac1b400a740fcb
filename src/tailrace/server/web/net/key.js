// The API key: asked for once, kept for the tab.

const byId = (id) => document.getElementById(id);
const KEY = "tailrace.key";

export const keptKey = () => sessionStorage.getItem(KEY);

export const forgetKey = () => sessionStorage.removeItem(KEY);

let asking = null;

/** Resolves once a key was given. Several requests may wait for the same question. */
export function askForKey({ refused = false } = {}) {
  if (refused) byId("key-refused").textContent = "This key was refused.";
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    dialog.showModal();
    byId("key").focus();
    dialog.addEventListener(
      "close",
      () => {
        const key = byId("key").value.trim();
        if (key) sessionStorage.setItem(KEY, key);
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
