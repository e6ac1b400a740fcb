// To the clipboard, also where the page is not served over https.

import { show } from "../icons.js";
import { make } from "./dom.js";

const SAID_MS = 1500;

/** `pressed` is a button with the icon of copying; it says for a moment how it went. */
export async function copyText(text, pressed) {
  const done = await toClipboard(text, pressed);
  const label = pressed.dataset.label ?? pressed.title;
  if (!pressed.dataset.label) setTimeout(() => restore(pressed, label), SAID_MS);
  pressed.dataset.label = label;
  show(pressed, done ? "check" : "circle-alert", done ? "Copied" : "Not copied");
}

function restore(pressed, label) {
  delete pressed.dataset.label;
  show(pressed, "copy", label);
}

async function toClipboard(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, pressed);
  }
}

/** A page over plain http has no clipboard: a text box that is selected can be copied nevertheless. */
function copyBySelection(text, pressed) {
  const focused = document.activeElement;
  const box = make("textarea", "off-screen");
  box.value = text;
  pressed.after(box); // a dialog keeps the focus inside
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  focused?.focus();
  return done;
}
