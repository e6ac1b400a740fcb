// Icons of the sprite, and buttons that show one: its words are for screen readers and for the pointer that rests on it.

const SVG = "http://www.w3.org/2000/svg";
const SPRITE = "/web/vendor/icons.svg";
const HAS_SPRITE = location.protocol.startsWith("http"); // an exported file shows the words

/** A symbol of `vendor/icons.svg`, by Lucide's name. */
export function icon(name) {
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${SPRITE}#${name}`);
  drawn.append(use);
  return drawn;
}

/** A button of one icon, named `label`. */
export function iconButton(name, label, action, className = "icon") {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  show(made, name, label);
  made.addEventListener("click", () => action(made));
  return made;
}

/** A link of one icon, named `label`. */
export function iconLink(name, label, address) {
  const made = document.createElement("a");
  made.className = "icon";
  made.href = address;
  show(made, name, label);
  return made;
}

/** Another icon and another name for a button. */
export function show(button, name, label) {
  const words = document.createElement("span");
  words.textContent = label;
  button.title = label;
  if (HAS_SPRITE) words.className = "unseen";
  button.replaceChildren(...(HAS_SPRITE ? [icon(name)] : []), words);
}
