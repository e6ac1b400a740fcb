// One conversation in the list: its first question, when it was last heard of, whether something happens in it.

import { titleOf } from "../conversation/question_files.js";
import { place } from "../conversation/conversation.js";
import { ago } from "./ago.js";

const BADGES = { running: "running", waiting: "approval" };

export class SessionRow {
  /** `choose(id)` opens it, `remove(item)` is asked to delete it. */
  constructor(choose, remove) {
    this.node = make("li", "row");
    this.link = make("a");
    this.link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return; // a tab or a window of its own
      event.preventDefault();
      choose(this.item.id);
    });
    this.badge = make("span", "badge");
    this.place = make("span", "place");
    this.when = make("time");
    this.button = make("button", "icon");
    this.button.type = "button";
    this.button.append(bin());
    this.button.addEventListener("click", () => remove(this.item));
    this.node.append(this.link, this.place, this.badge, this.when, this.button);
  }

  update(item, shown) {
    this.item = item;
    const title = titleOf(item.title) || "Untitled";
    set(this.link, "textContent", title);
    set(this.link, "title", title);
    set(this.place, "textContent", item.place === "web" ? "" : item.place);
    const address = place(item.id);
    if (this.link.getAttribute("href") !== address) this.link.href = address;
    set(this.badge, "textContent", BADGES[item.status] ?? "");
    this.node.dataset.status = item.status;
    set(this.when, "textContent", ago(item.updated_at));
    this.when.dateTime = new Date(item.updated_at * 1000).toISOString();
    this.button.setAttribute("aria-label", `Delete ${title}`);
    this.mark(shown);
  }

  mark(shown) {
    if (shown) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
  }
}

/** Sets only what differs: any assignment wakes the observers of the document. */
function set(node, property, value) {
  if (node[property] !== value) node[property] = value;
}

function bin() {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "0 0 16 16");
  icon.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 8.5h6l.5-8.5M7 7v3.5M9 7v3.5");
  icon.append(path);
  return icon;
}

function make(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}
