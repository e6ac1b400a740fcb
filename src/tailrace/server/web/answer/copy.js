// To the clipboard, also where the page is not served over https.

const SAID_MS = 1500;

export async function copyText(text, pressed) {
  const done = await toClipboard(text);
  const label = pressed.textContent;
  if (!pressed.dataset.said) setTimeout(() => restore(pressed, label), SAID_MS);
  pressed.dataset.said = "yes";
  pressed.textContent = done ? "Copied" : "Not copied";
}

function restore(pressed, label) {
  delete pressed.dataset.said;
  pressed.textContent = label;
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** A page over plain http has no clipboard: a text box that is selected can be copied nevertheless. */
function copyBySelection(text) {
  const focused = document.activeElement;
  const box = document.createElement("textarea");
  box.className = "off-screen";
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  focused?.focus();
  return done;
}
