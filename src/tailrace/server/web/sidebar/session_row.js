// One conversation in the list: its name, whether something happens in it, and where a search has found its text.

import { element, make } from "../answer/dom.js";
import { place } from "../conversation/conversation.js";
import { titleOf } from "../conversation/question_files.js";
import { iconButton } from "../icons.js";
import { ago } from "./ago.js";

const MARKS = /\*\*|`+|(?<=^|\s)#{1,6} /g;
const BADGES = { running: "running", waiting: "approval" };

export class SessionRow {
  /** `choose(id, run)` opens it, at a run where a search has found one; `more(item, button)` offers what else can be done. */
  constructor(choose, more) {
    this.node = make("li", "row");
    this.link = make("a");
    this.link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return; // a tab or a window of its own
      event.preventDefault();
      choose(this.item.id, this.item.excerpt?.run_id);
    });
    this.badge = make("span", "badge");
    this.place = make("span", "place");
    this.when = make("time");
    this.excerpt = make("p", "excerpt");
    this.button = iconButton("ellipsis", "More", () => more(this.item, this.button));
    this.node.append(this.link, this.place, this.badge, this.when, this.button, this.excerpt);
  }

  /** `query`: what is searched for. */
  update(item, shown, query = "") {
    this.item = item;
    const title = titleOf(item.title) || "Untitled";
    set(this.link, "textContent", title);
    set(this.link, "title", title);
    set(this.place, "textContent", item.place === "web" ? "" : item.place);
    const address = place(item.id) + (item.excerpt ? `#${item.excerpt.run_id}` : "");
    if (this.link.getAttribute("href") !== address) this.link.href = address;
    set(this.badge, "textContent", BADGES[item.status] ?? "");
    this.node.dataset.status = item.status;
    set(this.when, "textContent", ago(item.updated_at));
    this.when.dateTime = new Date(item.updated_at * 1000).toISOString();
    set(this.button.lastElementChild, "textContent", `More for ${title}`);
    this.tellExcerpt(item.excerpt?.text ?? "", query);
    this.mark(shown);
  }

  /** A hit in Markdown reads as text. */
  tellExcerpt(found, query) {
    const text = query.search(MARKS) >= 0 ? found : found.replaceAll(MARKS, "");
    this.excerpt.hidden = !text;
    if (this.excerpt.textContent === text && this.query === query) return;
    this.query = query;
    const at = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1;
    const end = at + query.length;
    this.excerpt.replaceChildren(...(at < 0 ? [text] : [text.slice(0, at), element("mark", [text.slice(at, end)]), text.slice(end)]));
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
