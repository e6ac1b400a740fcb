// Icons of the sprite, and buttons that show one: its words are for screen readers and for the pointer that rests on it.

import { button, element, link } from "./answer/dom.js";

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
  const made = button(label, action, className);
  show(made, name, label);
  return made;
}

/** A link of one icon, named `label`. */
export function iconLink(name, label, address) {
  const made = link(label, address, "icon");
  show(made, name, label);
  return made;
}

/** Another icon and another name for a button. */
export function show(shown, name, label) {
  shown.title = label;
  shown.replaceChildren(...(HAS_SPRITE ? [icon(name)] : []), element("span", [label], HAS_SPRITE ? "unseen" : ""));
}
