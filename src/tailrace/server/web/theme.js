// Light, dark, or as the system is: chosen by a button, kept in this browser. `view.js` applies it before anything is drawn.

import { show } from "./icons.js";

const KEPT = "tailrace.theme";
const ICONS = { system: "monitor", light: "sun", dark: "moon" };

export function offerTheme(button) {
  const tell = () => show(button, ICONS[chosen()], `Theme: ${chosen()}`);
  button.addEventListener("click", () => {
    const names = Object.keys(ICONS);
    choose(names[(names.indexOf(chosen()) + 1) % names.length]);
    tell();
  });
  tell();
}

const chosen = () => document.documentElement.dataset.theme ?? "system";

function choose(theme) {
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEPT);
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEPT, theme);
  }
}
