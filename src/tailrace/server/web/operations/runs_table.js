// All runs as a table: `/?runs`. The filters stand in the address, so that what is found can be linked.

import { button, element, make } from "../answer/dom.js";
import { iconButton } from "../icons.js";
import { read, wordsOf } from "../net/api.js";
import { csvOf, saveFile } from "../net/save_file.js";
import { frame } from "./frame.js";
import { cut, Table, tag } from "./table.js";
import { money, moment, number, runAddress, span, TONES } from "./words.js";

const PAGE = 50;
const TYPING_MS = 250;
const DAY_S = 86_400;
const ALL_KINDS = "agent,call,sequence";
const STATUS = { "": "Any status", running: "Running", completed: "Completed", incomplete: "Incomplete", failed: "Failed", stopped: "Stopped", pending: "Pending", parked: "Set aside" };
const KINDS = { "": "All kinds", agent: "Turns", call: "API calls", sequence: "Sequences" };
const SINCE = { "": "Any time", 1: "Last 24 hours", 7: "Last 7 days", 30: "Last 30 days" };
const SAVED = "id at status kind model answered_by key session input duration_s input_tokens output_tokens cost_usd error".split(" ");
const TEXTS = { q: "Text", model: "Model", key: "Key", session: "Session", min_usd: "Dollars from" };

export async function openRuns(address = new URLSearchParams(location.search)) {
  await new RunsView(address).open();
}

class RunsView {
  constructor(address) {
    const { status, tools, body } = frame("runs");
    this.status = status;
    this.sort = address.get("sort") ?? "newest";
    this.found = [];
    this.table = new Table("Runs", this.columns(), ({ id }) => id, { none: "No run matches.", sorted: (sort) => this.sortBy(sort) });
    this.form = element("form", [
      ...Object.entries(TEXTS).map(([name, label]) => text(name, label, address.get(name) ?? "")),
      choice("status", "Status", STATUS, address.get("status") ?? ""),
      choice("kind", "Kind", KINDS, address.get("kind") ?? ""),
      choice("days", "Time", SINCE, address.get("days") ?? ""),
      button("Clear", () => this.clear(), "quiet"),
    ], "ops-filters");
    this.form.setAttribute("role", "search");
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", ({ target }) => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.look(), target.tagName === "SELECT" ? 0 : TYPING_MS);
    });
    this.more = button("More", () => this.look(this.next), "ops-more");
    tools.append(iconButton("refresh-cw", "Refresh", () => this.look()), button("CSV", () => this.save(), "ops-small"));
    body.classList.add("ops-wide-body");
    body.append(this.form, this.table.node, this.more);
  }

  async open() {
    addEventListener("pagehide", () => this.asking?.abort());
    await this.look();
  }

  columns() {
    return [
      { title: "When", sort: "newest", of: (run) => moment(run.created_at) },
      { title: "Status", of: ({ status, state }) => tag(state ?? status, TONES[state ?? status]) },
      { title: "Run", grow: true, of: (run) => cut(run.input || run.kind, runAddress(run)) },
      { title: "Model", less: true, of: (run) => cut(run.answered_by || run.model) },
      { title: "Key", less: true, of: ({ key }) => cut(key) },
      { title: "Session", less: true, of: (run) => session(run) },
      { title: "Time", numeric: true, sort: "slowest", of: (run) => span(run.duration_s ?? lasted(run)) },
      { title: "Tokens", numeric: true, sort: "tokens", less: true, of: ({ usage }) => number(usage && (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0)) },
      { title: "Cost", numeric: true, sort: "cost", of: (run) => money(run.cost_usd) },
      { title: "Error", less: true, of: ({ error }) => cut(error?.message ?? "") },
    ];
  }

  /** What the form asks for, as parts of the address; only what is set. */
  get filters() {
    const given = [...new FormData(this.form)].map(([name, value]) => [name, value.trim()]);
    return new URLSearchParams([...given, ["sort", this.sort === "newest" ? "" : this.sort]].filter(([, value]) => value));
  }

  get query() {
    const query = this.filters;
    const days = Number(query.get("days"));
    query.delete("days");
    if (days) query.set("since", Math.floor(Date.now() / 1000 - days * DAY_S));
    if (!query.has("kind")) query.set("kind", ALL_KINDS);
    return query;
  }

  async look(before = "") {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const filters = this.filters.toString();
    history.replaceState(null, "", `/?runs${filters && `&${filters}`}`);
    const query = this.query;
    query.set("limit", PAGE);
    if (before) query.set("before", before);
    try {
      const { data, page } = await read(`/runs?${query}`, { signal });
      this.found = before ? [...this.found, ...data] : data;
      this.next = page.next;
      this.show();
    } catch (error) {
      if (!signal.aborted) this.tell(wordsOf(error), "bad");
    }
  }

  show() {
    this.table.update(this.found);
    this.table.mark(this.sort);
    this.more.hidden = !this.next;
    const priced = this.found.filter(({ cost_usd: usd }) => usd !== null);
    const used = this.found.filter(({ usage }) => usage?.input_tokens || usage?.output_tokens);
    const sum = money(priced.reduce((sum, { cost_usd: usd }) => sum + usd, 0));
    const cost = priced.length ? ` ${priced.length < used.length ? "At least " : ""}${sum}.` : "";
    this.tell(`${this.found.length}${this.next ? "+" : ""} ${this.found.length === 1 ? "run" : "runs"}.${cost}`, "");
  }

  tell(words, tone) {
    this.status.textContent = words;
    this.status.dataset.tone = tone;
  }

  sortBy(sort) {
    this.sort = this.sort === sort ? "newest" : sort;
    this.look();
  }

  clear() {
    for (const input of this.form.elements) if (input.name) input.value = "";
    this.sort = "newest";
    this.look();
  }

  /** Saves what the filters find, up to a thousand runs, as a file. */
  async save() {
    const query = this.query;
    query.set("limit", 1000);
    try {
      const { data } = await read(`/runs?${query}`);
      const rows = data.map(({ usage, error, ...run }) => ({
        ...run, ...usage, at: new Date(run.created_at * 1000).toISOString(), error: error?.message,
      }));
      saveFile(csvOf(SAVED, rows), "runs.csv");
    } catch (error) {
      this.tell(wordsOf(error), "bad");
    }
  }
}

/** How long a run has lasted that goes on. */
const lasted = ({ status, created_at: began }) => (status === "running" ? Math.max(0, Date.now() / 1000 - began) : null);

function session({ session: name, kind }) {
  return cut(name, name && kind === "agent" ? `/?session=${encodeURIComponent(name)}` : "");
}

function text(name, label, value) {
  const input = Object.assign(make("input"), { name, value, type: "search", placeholder: label, autocomplete: "off" });
  if (name === "min_usd") Object.assign(input, { type: "number", min: 0, step: "any" });
  input.setAttribute("aria-label", label);
  return input;
}

function choice(name, label, options, chosen) {
  const select = element("select", Object.entries(options).map(([value, words]) => new Option(words, value)));
  Object.assign(select, { name, value: chosen });
  select.setAttribute("aria-label", label);
  return select;
}
