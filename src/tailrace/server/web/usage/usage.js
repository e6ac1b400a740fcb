// What was used and what it cost: `/?usage`. By key and by model, today or over days; a key sees its own.

import { button, element, link, make } from "../answer/dom.js";
import { read, wordsOf } from "../net/api.js";
import { csvOf, saveFile } from "../net/save_file.js";
import { frame } from "../operations/frame.js";
import { money as dollars } from "../operations/words.js";
import { usageChart } from "./chart.js";

const DAY_MS = 86_400_000;
const SPANS = { today: ["Today", 0], week: ["7 days", 6], month: ["30 days", 29] };
const NUMBERS = ["calls", "input_tokens", "output_tokens"];
const SAVED = ["day", "key", "model", ...NUMBERS, "usd", "unpriced", "estimated_tokens"];

export async function openUsage(address = new URLSearchParams(location.search)) {
  await new UsageView(SPANS[address.get("usage")] ? address.get("usage") : "today").open();
}

class UsageView {
  constructor(span) {
    this.span = span;
    const { root, status, tools, body } = frame("usage");
    root.id = "usage";
    this.note = status;
    this.choices = element("div", Object.keys(SPANS).map((name) => this.choice(name)), "usage-spans");
    this.choices.setAttribute("role", "group");
    this.choices.setAttribute("aria-label", "Time");
    this.csv = button("CSV", () => saveFile(csvOf(SAVED, this.rows), `usage-${span}.csv`), "ops-small");
    this.csv.hidden = true;
    tools.append(this.choices, this.csv);
    this.body = body;
  }

  choice(name) {
    const way = link(SPANS[name][0], `/?usage=${name}`);
    if (name === this.span) way.setAttribute("aria-current", "true");
    return way;
  }

  async open() {
    const since = new Date(Date.now() - SPANS[this.span][1] * DAY_MS).toISOString().slice(0, 10);
    try {
      const { data } = await read(`/usage?since=${since}`);
      this.show(data, since);
    } catch (error) {
      this.note.setAttribute("role", "alert");
      this.note.textContent = wordsOf(error);
    }
  }

  show(found, since) {
    const rows = this.span === "today" ? found.filter((row) => row.day === since) : found;
    this.rows = rows;
    this.csv.hidden = !rows.length;
    const calls = total(found, "calls") - total(rows, "calls"); // of later days: a clock was ahead
    const dated = calls === 1 ? "1 call is" : `${calls.toLocaleString("en")} calls are`;
    const later = calls ? ` ${dated} dated after today because a clock was ahead; see 7 days.` : "";
    if (!rows.length) {
      this.note.textContent = `Nothing was used ${this.span === "today" ? "today" : "in this time"}.${later}`;
      return;
    }
    if (this.span !== "today") this.body.append(usageChart(rows, daysFrom(since, rows)));
    const names = this.span === "today" ? ["key", "model"] : ["key", "model", "day"];
    this.body.append(...names.map((name) => table(name, summed(rows, name))));
    const [unpriced, estimated] = ["unpriced", "estimated_tokens"].map((field) => total(rows, field));
    const without = unpriced ? `, without ${unpriced.toLocaleString("en")} tokens of models that have none` : "";
    const uncounted = estimated ? ` ${estimated.toLocaleString("en")} tokens are estimated: their provider has not counted them.` : "";
    this.note.textContent = `Money by list prices${without}.${uncounted} Days are those of UTC.${later}`;
  }
}

/** Each day up to today, and later ones where a clock was ahead. */
function daysFrom(since, rows) {
  const days = new Set(rows.map(({ day }) => day));
  for (let at = Date.parse(since); at <= Date.now(); at += DAY_MS) days.add(new Date(at).toISOString().slice(0, 10));
  return [...days].sort();
}

function summed(rows, by) {
  const sums = new Map();
  for (const row of rows) {
    const sum = sums.get(row[by]) ?? { name: row[by], usd: 0, unpriced: 0, calls: 0, input_tokens: 0, output_tokens: 0 };
    for (const field of [...NUMBERS, "usd", "unpriced"]) sum[field] += row[field] ?? 0;
    sums.set(row[by], sum);
  }
  const order = by === "day" ? (a, b) => (a.name < b.name ? 1 : -1) : (a, b) => b.usd - a.usd || b.output_tokens - a.output_tokens;
  return [...sums.values()].sort(order);
}

const total = (rows, field) => rows.reduce((sum, row) => sum + (row[field] ?? 0), 0);

/** Where a part has no price, at least so much; where none has one, it is not known. */
function money({ usd, unpriced, input_tokens: asked, output_tokens: answered }) {
  if (unpriced && unpriced >= asked + answered) return dollars(null);
  return `${unpriced ? "≥ " : ""}${dollars(usd)}`;
}

function table(by, rows) {
  const name = header(by[0].toUpperCase() + by.slice(1), "col");
  const head = element("tr", [name, ...["Calls", "Input", "Output", "Cost"].map((title) => header(title, "col", "numeric"))]);
  const body = rows.map((row) =>
    element("tr", [header(row.name, "row"), ...NUMBERS.map((field) => cell(row[field].toLocaleString("en"))), cell(money(row))]),
  );
  const caption = make("caption");
  caption.textContent = `By ${by}`;
  const drawn = element("table", [caption, element("thead", [head]), element("tbody", body)]);
  const scrolls = element("div", [drawn], "ops-table usage-table");
  scrolls.tabIndex = 0;
  scrolls.setAttribute("role", "region");
  scrolls.setAttribute("aria-label", `Usage by ${by}`);
  return element("div", [scrolls], "ops-card");
}

function header(text, scope, name = "") {
  const node = make("th", name);
  node.scope = scope;
  node.textContent = text;
  return node;
}

function cell(text) {
  const node = make("td", "numeric");
  node.textContent = text;
  return node;
}
