// What can be done with a conversation: rename, pin, share and delete it.

import { element } from "../answer/dom.js";
import { titleOf } from "../conversation/question_files.js";
import { icon } from "../icons.js";
import { ask } from "../net/api.js";
import { tellRefusal } from "../net/reached.js";

const byId = (id) => document.getElementById(id);
const MARGIN_PX = 8;

export class SessionMenu {
  /** `changed(id)` and `removed(id)` are called after the server has done it; `share(id)` saves it as a file. */
  constructor({ changed, removed, share }) {
    Object.assign(this, { changed, removed, share });
    this.menu = byId("session-menu");
    byId("rename-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.change({ title: byId("rename-name").value.trim() }, byId("rename-dialog"));
    });
    byId("rename-cancel").addEventListener("click", () => byId("rename-dialog").close());
    byId("delete-confirm").addEventListener("click", () => this.remove());
    for (const name of ["delete-dialog", "rename-dialog"]) byId(name).addEventListener("close", () => byId("message").focus());
  }

  open(item, button) {
    this.item = item;
    const choice = (name, words, act) => {
      const made = element("button", [icon(name), words], "quiet");
      made.type = "button";
      made.addEventListener("click", () => {
        this.menu.hidePopover();
        act();
      });
      return made;
    };
    this.menu.replaceChildren(
      choice("pencil", "Rename", () => this.askName()),
      choice(item.pinned ? "pin-off" : "pin", item.pinned ? "Unpin" : "Pin", () => this.change({ pinned: !item.pinned })),
      choice("share-2", "Share as a file", () => this.share(item.id)),
      choice("trash-2", "Delete", () => this.askToRemove()),
    );
    this.menu.showPopover();
    const [box, own] = [button.getBoundingClientRect(), this.menu.getBoundingClientRect()];
    this.menu.style.left = `${Math.max(MARGIN_PX, Math.min(box.left, innerWidth - own.width - MARGIN_PX))}px`;
    this.menu.style.top = `${Math.min(box.bottom, innerHeight - own.height - MARGIN_PX)}px`;
    this.menu.querySelector("button").focus();
  }

  get address() {
    return `/sessions/${encodeURIComponent(this.item.id)}`;
  }

  askName() {
    byId("rename-refused").textContent = "";
    byId("rename-name").value = titleOf(this.item.title);
    byId("rename-dialog").showModal();
    byId("rename-name").select();
  }

  async change(body, dialog = null) {
    try {
      const headers = { "Content-Type": "application/json" };
      await ask(this.address, { method: "PATCH", headers, body: JSON.stringify(body) });
      dialog?.close();
      this.changed(this.item.id, body);
    } catch (error) {
      tellRefusal(dialog ? byId("rename-refused") : byId("conversations-note"), error);
    }
  }

  askToRemove() {
    const answers = this.item.runs === 1 ? "one answer" : `${this.item.runs} answers`;
    byId("delete-what").textContent = `“${titleOf(this.item.title) || "Untitled"}”, ${answers}. This cannot be undone.`;
    byId("delete-refused").textContent = "";
    byId("delete-dialog").showModal();
  }

  async remove() {
    const { id } = this.item;
    try {
      await ask(this.address, { method: "DELETE" });
    } catch (error) {
      tellRefusal(byId("delete-refused"), error);
      return;
    }
    byId("delete-dialog").close();
    this.removed(id);
  }
}
