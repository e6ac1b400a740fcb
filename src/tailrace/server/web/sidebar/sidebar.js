// The list of conversations: what there is, what runs, what waits for an answer; and the runs that are not conversations.
// On a narrow screen it is a drawer over the conversation.

import { titleOf } from "../conversation/question_files.js";
import { ask, read, wordsOf } from "../net/api.js";
import { tellRefusal } from "../net/reached.js";
import { RunList } from "./runs.js";
import { SessionRow } from "./session_row.js";

const byId = (id) => document.getElementById(id);
const PAGE = 30;
const SOON_MS = 300; // after something has changed here
const BUSY_MS = 2500; // while something runs
const IDLE_MS = 10_000;
const TYPING_MS = 200;
const NEAR_PX = 200;

export class Sidebar {
  /**
   * `open(session)` shows a conversation, "" a new one; `removed(session)` is told of one that was deleted here, and
   * `listed(sessions)`, a map, of what there is after each look.
   */
  constructor({ open, removed, listed }) {
    Object.assign(this, { open, removed, listed });
    this.list = byId("conversations");
    this.rows = new Map(); // session → SessionRow, in the server's order
    this.next = null; // where the next page begins
    this.query = "";
    this.session = "";
    this.timer = 0;
    this.loading = new AbortController();
    this.others = new BroadcastChannel("tailrace.conversations"); // other tabs look again when one was deleted
    this.runs = new RunList(byId("runs-section"), byId("runs"), byId("runs-note"));
    this.listen();
  }

  start() {
    byId("conversations-note").textContent = "Loading…"; // until the list is drawn
    this.started = true;
    this.reload();
  }

  listen() {
    const search = byId("search");
    search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.find(search.value.trim()), TYPING_MS);
    });
    byId("older").addEventListener("click", () => this.loadOlder());
    byId("conversation-list").addEventListener("scroll", () => this.loadSeen(), { passive: true });
    byId("open-sidebar").addEventListener("click", () => this.openDrawer());
    byId("close-sidebar").addEventListener("click", () => this.closeDrawer());
    byId("shade").addEventListener("click", () => this.closeDrawer());
    matchMedia("(min-width: 56rem)").addEventListener("change", () => this.closeDrawer());
    document.addEventListener("visibilitychange", () => document.hidden || this.refreshIn(0));
    addEventListener("online", () => this.refreshIn(0));
    this.others.addEventListener("message", () => this.refreshIn(0));
    byId("delete-confirm").addEventListener("click", () => this.remove());
    byId("delete-dialog").addEventListener("close", () => byId("message").focus());
  }

  // ── what is in it ─────────────────────────────────────────────────────────────────────────────────────────

  find(query) {
    if (query === this.query) return;
    this.query = query;
    this.reload();
  }

  /** From the first page on. */
  async reload() {
    this.loading.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    const page = await this.page("", signal);
    if (!page || signal.aborted) return;
    this.next = page.page.next;
    this.draw(this.taken(page.data));
    this.loadSeen();
    this.refreshIn(this.pace);
  }

  /** More, where the end of the list is nearly in view. */
  loadSeen() {
    const list = byId("conversation-list");
    if (list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_PX) this.loadOlder();
  }

  async loadOlder() {
    if (!this.next || this.older) return;
    this.older = true;
    const { signal } = this.loading;
    const page = await this.page(this.next, signal);
    this.older = false;
    if (!page || signal.aborted) return;
    this.next = page.page.next;
    this.draw(new Map([...this.rows, ...this.taken(page.data)]));
    this.loadSeen();
  }

  /** The latest again: what has changed since is among them. */
  async refresh() {
    if (!this.started || document.hidden) return;
    const { signal } = this.loading;
    const page = await this.page("", signal);
    if (signal.aborted) return;
    if (page) {
      const first = this.taken(page.data);
      const known = [...this.rows.keys()];
      const oldest = page.page.more ? known.indexOf(page.data.at(-1)?.id) : known.length; // up to there it is told
      if (oldest >= 0) for (const id of known.slice(oldest + 1)) first.has(id) || first.set(id, this.rows.get(id));
      if (oldest < 0 || !page.page.more) this.next = page.page.next;
      this.draw(first);
      this.runs.refresh();
      this.listed(first);
    }
    this.refreshIn(this.pace);
  }

  refreshIn(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), ms);
  }

  get pace() {
    return [...this.rows.values()].some(({ item }) => item.status !== "idle") ? BUSY_MS : IDLE_MS;
  }

  async page(before, signal) {
    const query = new URLSearchParams({ limit: PAGE });
    if (this.query) query.set("q", this.query);
    if (before) query.set("before", before);
    try {
      return await read(`/sessions?${query}`, { signal });
    } catch (error) {
      if (!signal.aborted && !this.rows.size) byId("conversations-note").textContent = wordsOf(error);
      return null;
    }
  }

  /** The rows of these items: those that there are, and new ones. */
  taken(items) {
    const rows = new Map();
    for (const item of items) {
      const row = this.rows.get(item.id) ?? new SessionRow((id) => this.choose(id), (shown) => this.askToRemove(shown));
      row.update(item, item.id === this.session);
      rows.set(item.id, row);
    }
    return rows;
  }

  /** A row that is where it belongs is not touched: it may have the focus. */
  draw(rows) {
    this.rows = rows;
    [...rows.values()].forEach(({ node }, index) => {
      if (this.list.children[index] !== node) this.list.insertBefore(node, this.list.children[index] ?? null);
    });
    while (this.list.children.length > rows.size) this.list.lastElementChild.remove();
    byId("older").hidden = !this.next;
    const nothing = this.query ? `Nothing found for “${this.query}”.` : "None yet.";
    byId("conversations-note").textContent = rows.size ? "" : this.next ? "Searching further back…" : nothing;
  }

  // ── what people do ────────────────────────────────────────────────────────────────────────────────────────

  choose(session) {
    this.closeDrawer();
    this.open(session);
  }

  /** The conversation that is shown is this one, and something has happened in it. */
  changed(session) {
    this.session = session;
    for (const [id, row] of this.rows) row.mark(id === session);
    this.refreshIn(SOON_MS);
  }

  askToRemove(item) {
    this.removing = item;
    const answers = item.runs === 1 ? "one answer" : `${item.runs} answers`;
    byId("delete-what").textContent = `“${titleOf(item.title) || "Untitled"}”, ${answers}. This cannot be undone.`;
    byId("delete-refused").textContent = "";
    byId("delete-dialog").showModal();
  }

  async remove() {
    const { id } = this.removing;
    try {
      await ask(`/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
    } catch (error) {
      tellRefusal(byId("delete-refused"), error);
      return;
    }
    byId("delete-dialog").close();
    this.rows.delete(id);
    this.draw(this.rows);
    this.removed(id);
    this.others.postMessage("changed");
  }

  openDrawer() {
    document.body.classList.add("drawer");
    byId("stage").inert = true;
    byId("open-sidebar").setAttribute("aria-expanded", "true");
    byId("close-sidebar").focus();
  }

  /** Whether it was open. */
  closeDrawer() {
    if (!document.body.classList.contains("drawer")) return false;
    document.body.classList.remove("drawer");
    byId("stage").inert = false;
    byId("open-sidebar").setAttribute("aria-expanded", "false");
    byId("open-sidebar").focus();
    return true;
  }
}
