// Everything that waits for a decision, over all conversations and platforms: a badge in every view, and the list that it
// opens.

import { button, element, link, make } from "../answer/dom.js";
import { ApprovalCard } from "./card.js";
import { InboxFeed } from "./inbox_feed.js";
import { canNotify, notify, switchNotifications, wantsNotifications } from "./notify.js";

const PLACES = { web: "", python: "a Python program", mcp: "an MCP host", terminal: "the terminal", editor: "an editor" };

class Inbox {
  constructor(place) {
    this.place = place;
    this.cards = new Map(); // approval id → {card, node, question}
    this.known = null; // ids that were told before; null: nothing was, yet
    this.feed = new InboxFeed((questions) => this.show(questions), wantsNotifications);
    this.badge = button("", () => this.open(), "inbox-badge");
    this.badge.hidden = true;
    this.heading = element("h2", ["Waiting for approval"]);
    this.heading.id = "inbox-heading";
    this.list = make("div", "inbox-list");
    this.empty = element("p", ["Nothing waits."], "inbox-empty");
    this.bell = button("", () => this.switchBell());
    this.dialog = element("dialog", [
      element("div", [this.heading, button("Close", () => this.dialog.close())], "inbox-head"),
      this.list,
      this.empty,
      this.bell,
    ]);
    this.dialog.id = "inbox";
    this.dialog.setAttribute("aria-labelledby", this.heading.id);
    this.dialog.addEventListener("close", () => this.put());
    this.drawBell();
  }

  start(bar) {
    bar.append(this.badge);
    document.body.append(this.dialog);
    const title = document.querySelector("title");
    new MutationObserver(() => this.tellTitle()).observe(title, { childList: true });
    this.feed.start();
    setInterval(() => this.tick(), 1000);
  }

  open() {
    this.tick();
    this.dialog.showModal();
    for (const { node } of this.cards.values()) this.list.append(node); // in their order
    (this.list.querySelector("button, a") ?? this.dialog.querySelector("button")).focus();
  }

  /** The list as it is now. A card that stays keeps what was typed into it. */
  show(questions) {
    const ids = new Set(questions.map((question) => question.approval_id));
    for (const [id, { node }] of this.cards) {
      if (ids.has(id)) continue;
      node.remove();
      this.cards.delete(id);
    }
    for (const question of questions) {
      if (this.cards.has(question.approval_id)) continue;
      this.add(question);
      if (this.known && !this.known.has(question.approval_id)) notify(question, () => this.open());
    }
    this.put();
    this.known = ids;
    this.empty.hidden = ids.size > 0;
    this.badge.hidden = ids.size === 0;
    this.badge.textContent = `${ids.size} waiting`;
    this.tellTitle();
    if (this.dialog.open && !this.dialog.contains(document.activeElement)) this.dialog.querySelector("button").focus();
  }

  add(question) {
    const card = new ApprovalCard(question, () => question.run_id);
    const where = PLACES[question.place] ?? question.place;
    const [kind, id] = question.session ? ["session", question.session] : ["run", question.run_id];
    const way = link(question.title || "a run", `/?${kind}=${encodeURIComponent(id)}`);
    const node = element("div", [element("p", [way, where ? ` · ${where}` : ""], "inbox-title"), card.node], "inbox-item");
    this.cards.set(question.approval_id, { card, node, question });
  }

  /** Each question to its place in the view, or to the list: all of them while that is open. */
  put() {
    for (const { node, question } of this.cards.values()) {
      const place = (!this.dialog.open && this.place(question)) || this.list;
      if (!place.contains(node)) place.append(node);
    }
  }

  tick() {
    for (const { card } of this.cards.values()) card.tick();
  }

  tellTitle() {
    const bare = document.title.replace(/^\(\d+\) /, "");
    const wanted = this.cards.size ? `(${this.cards.size}) ${bare}` : bare;
    if (document.title !== wanted) document.title = wanted;
  }

  async switchBell() {
    await switchNotifications();
    this.drawBell();
    this.feed.check();
  }

  drawBell() {
    this.bell.hidden = !canNotify();
    this.bell.textContent = wantsNotifications() ? "Stop notifying me" : "Notify me when this tab is hidden";
  }
}

/** `bar` is where the view has its badge; `place(question)` where it shows one, if it does. */
export function startInbox(bar, place = () => null) {
  new Inbox(place).start(bar);
}
