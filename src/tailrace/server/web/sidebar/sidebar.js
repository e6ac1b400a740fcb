// The list of conversations: what there is, what runs, what waits for an answer; and the runs that are not conversations.
// On a narrow screen it is a drawer over the conversation.

import { element } from "../answer/dom.js";
import { read, wordsOf } from "../net/api.js";
import { groupOf } from "./groups.js";
import { RunList } from "./runs.js";
import { SessionMenu } from "./session_menu.js";
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
   * `open(session, run)` shows a conversation, "" a new one, at a run where a search has found it; `removed(session)` is told
   * of one that was deleted here, `renamed(session, title)` of a new name, and `listed(sessions)`, a map, of what there is
   * after each look. `share(session)` saves one as a file.
   */
  constructor({ open, removed, renamed, listed, share }) {
    Object.assign(this, { open, removed, listed });
    this.menu = new SessionMenu({
      share,
      removed: (id) => this.forget(id),
      changed: (id, { title }) => {
        if (title !== undefined) renamed(id, title);
        this.others.postMessage("changed");
        this.reload();
      },
    });
    this.groups = new Map(); // name → its heading
    this.list = byId("conversations");
    this.rows = new Map(); // session → SessionRow, in the server's order
    this.next = null; // where the next page begins
    this.query = "";
    this.session = "";
    this.timer = 0;
    this.loading = new AbortController();
    this.others = new BroadcastChannel("tailrace.conversations"); // other tabs look again when one was deleted
    this.runs = new RunList(byId("runs-section"), byId("runs"), byId("runs-note"), (session) => this.rows.has(session));
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
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") this.list.querySelector("a")?.focus();
    });
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
    const query = new URLSearchParams({ limit: PAGE, people: true });
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
      const row = this.rows.get(item.id) ?? new SessionRow((id, run) => this.choose(id, run), (shown, button) => this.menu.open(shown, button));
      row.update(item, item.id === this.session, this.query);
      rows.set(item.id, row);
    }
    return rows;
  }

  /** A row that is where it belongs is not touched: it may have the focus. */
  draw(rows) {
    this.rows = rows;
    const wanted = this.grouped([...rows.values()]);
    wanted.forEach((node, index) => {
      if (this.list.children[index] !== node) this.list.insertBefore(node, this.list.children[index] ?? null);
    });
    while (this.list.children.length > wanted.length) this.list.lastElementChild.remove();
    byId("older").hidden = !this.next;
    const nothing = this.query ? `Nothing found for “${this.query}”.` : "No conversations yet.";
    byId("conversations-note").textContent = rows.size ? "" : this.next ? "Searching further back…" : nothing;
  }

  /** The rows under the headings of their days; what was searched for has none. */
  grouped(rows) {
    let group = "";
    return rows.flatMap(({ node, item }) => {
      const name = this.query ? "" : groupOf(item);
      if (name === group) return [node];
      group = name;
      if (!this.groups.has(name)) this.groups.set(name, element("li", [name], "group"));
      return [this.groups.get(name), node];
    });
  }

  // ── what people do ────────────────────────────────────────────────────────────────────────────────────────

  choose(session, run = "") {
    this.closeDrawer();
    this.open(session, run);
  }

  /** To the search, from anywhere. */
  focusSearch() {
    if (matchMedia("(max-width: 55.99rem)").matches) this.openDrawer();
    byId("search").focus();
    byId("search").select();
  }

  /** What can be done with the conversation that is shown. */
  openMenu(button) {
    const row = this.rows.get(this.session);
    if (row) this.menu.open(row.item, button);
  }

  /** The conversation that is shown is this one, and something has happened in it. */
  changed(session) {
    this.session = session;
    for (const [id, row] of this.rows) row.mark(id === session);
    this.refreshIn(SOON_MS);
  }

  /** One that was deleted here. */
  forget(id) {
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
