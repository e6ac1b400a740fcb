// The operator's page: `/?ops`. Processes, providers, platforms, live runs, approvals, keys and the last errors, over all
// nodes, asked for again every two seconds while the tab is in view.

import { button, element } from "../answer/dom.js";
import { forgetKey } from "../net/key.js";
import { post, read, wordsOf } from "../net/api.js";
import { frame, section } from "./frame.js";
import { KeysView } from "./keys.js";
import { cut, Table, tag } from "./table.js";
import { money, moment, number, runAddress, span, TONES, UNKNOWN } from "./words.js";

const EVERY_MS = 2000;
const LATELY_S = 900;
const MOST_ERRORS = 12; // that the server tells of

export async function openOperations() {
  await new OperationsView().open();
}

class OperationsView {
  constructor() {
    const { status, body } = frame("ops");
    this.status = status;
    this.now = 0;
    this.owners = new Map(); // process → its short name
    this.parts = new Table("Store, bus and platforms", PARTS, ({ name }) => name);
    this.nodes = new Table("Processes", this.nodeColumns(), ({ owner }) => owner);
    this.live = new Table("Live runs", this.liveColumns(), ({ id }) => id, { none: "Nothing runs." });
    this.approvals = new Table("Waiting approvals", this.approvalColumns(), (one) => one.approval_id, { none: "Nothing waits." });
    this.providers = new Table("Providers, last 15 minutes", this.providerColumns(), ({ name }) => name);
    this.errors = new Table("Last errors", ERRORS, ({ id }) => id, { none: "No run has failed." });
    this.keys = new KeysView(() => this.look());
    this.moreLive = element("p", ["Only the newest 100 are shown."], "ops-none");
    body.append(
      section("Processes", [this.nodes.node]),
      section("Store, bus and platforms", [this.parts.node]),
      section("Live runs", [this.live.node, this.moreLive], { wide: true }),
      section("Waiting approvals", [this.approvals.node], { wide: true }),
      section("Providers, last 15 minutes", [this.providers.node], { wide: true }),
      section("Keys today", [this.keys.table.node], { wide: true, tools: [this.keys.add] }),
      section("Last errors", [this.errors.node], { wide: true }),
    );
    this.body = body;
    body.hidden = true; // until there is something to show
  }

  async open() {
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    await this.look();
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    try {
      this.show(await read("/ops"));
    } catch (error) {
      this.status.setAttribute("role", "alert");
      this.status.textContent = wordsOf(error);
      if (error.status === 403) {
        this.status.append(" ", button("Use another key", () => (forgetKey(), location.reload())));
        return;
      }
    }
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  show(found) {
    this.now = found.now;
    this.body.hidden = false;
    this.owners = new Map(found.nodes.map(({ owner, report }) => [owner, report ? `${report.host} ${report.pid}` : owner]));
    this.nodes.update(found.nodes);
    this.parts.update(partsOf(found));
    this.live.update(found.live);
    this.moreLive.hidden = !found.more_live;
    this.approvals.update(found.approvals);
    this.providers.update(found.providers);
    this.keys.update(found.keys);
    this.errors.update(found.errors);
    this.tell(found);
  }

  /** One line says whether all is well, and if not, what is not. It is read out only where it changes. */
  tell({ now, nodes, live, approvals, platforms, providers, errors }) {
    const silent = nodes.filter(({ report }) => !report).length;
    const problems = [
      ...new Set(nodes.flatMap(({ report }) => Object.keys(report?.problems ?? {}))),
      ...(silent ? [`${silent} of the processes`] : []),
      ...platforms.filter(({ state }) => state === "unserved").map(({ name }) => name),
      ...providers.filter(({ problem }) => problem).map(({ name }) => name),
    ];
    const failed = errors.filter((run) => run.created_at + run.duration_s > now - LATELY_S).length;
    const counts = [count(nodes.length, "process", "processes"), count(live.length, "live run"), count(approvals.length, "waiting approval")];
    if (failed) counts.push(`${failed === MOST_ERRORS ? "at least " : ""}${count(failed, "run")} failed in the last 15 minutes`);
    const health = problems.length ? `Look at: ${[...new Set(problems)].join(", ")}. ` : failed ? "" : "All is well. ";
    const words = `${health}${counts.join(", ")}.`;
    this.status.setAttribute("role", "status");
    this.status.dataset.tone = problems.length ? "bad" : "good";
    if (this.status.textContent !== words) this.status.textContent = words;
  }

  // ── the tables ────────────────────────────────────────────────────────────────────────────────────────────

  nodeColumns() {
    return [
      { title: "Process", grow: true, of: ({ owner }) => cut(this.owners.get(owner)) },
      { title: "State", of: (node) => nodeState(node) },
      { title: "Up", numeric: true, of: ({ report }) => (report ? span(this.now - report.started_at) : UNKNOWN) },
      { title: "Turns", numeric: true, of: ({ report }) => number(report?.running) },
      { title: "Requests", numeric: true, of: ({ report }) => number(report?.requests) },
      { title: "Version", less: true, of: ({ report }) => report?.version ?? UNKNOWN },
    ];
  }

  liveColumns() {
    return [
      { title: "State", of: ({ state }) => tag(state, TONES[state]) },
      { title: "Run", grow: true, of: (run) => cut(run.question || run.kind, runAddress(run)) },
      { title: "Model", less: true, of: ({ model }) => cut(model) },
      { title: "Key", less: true, of: ({ key }) => cut(key) },
      { title: "Process", less: true, of: ({ owner }) => cut(this.owners.get(owner) ?? "") },
      { title: "Time", numeric: true, of: (run) => span(run.duration_s) },
      { title: "Tokens", numeric: true, less: true, of: ({ tokens }) => number(tokens) },
      { title: "Cost", numeric: true, less: true, of: (run) => money(run.cost_usd) },
      { title: "Stop", of: (run) => this.stop(run) },
    ];
  }

  stop({ id, question, kind }) {
    const pressed = async (made) => {
      made.disabled = true;
      try {
        await post(`/runs/${encodeURIComponent(id)}/stop`, {});
        this.look();
      } catch (error) {
        this.status.textContent = wordsOf(error);
        made.disabled = false;
      }
    };
    const made = button("Stop", pressed, "ops-small");
    made.setAttribute("aria-label", `Stop ${question || kind}`);
    made.dataset.state = id;
    return made;
  }

  approvalColumns() {
    return [
      { title: "Waits", of: (one) => span(this.now - one.asked_at) },
      { title: "Tool", of: (one) => one.tool_name },
      { title: "Asks to run", grow: true, of: ({ command }) => cut(command) },
      { title: "Run", of: (one) => cut(one.title || "a run", one.session ? `/?session=${encodeURIComponent(one.session)}` : `/?run=${encodeURIComponent(one.run_id)}`) },
      { title: "For", less: true, of: (one) => cut(one.requester_name || one.requester) },
      { title: "Time left", numeric: true, of: (one) => (one.expires_at ? span(Math.max(0, one.expires_at - this.now)) : UNKNOWN) },
    ];
  }

  providerColumns() {
    return [
      { title: "Provider", of: ({ name }) => name },
      { title: "State", of: (provider) => this.providerState(provider) },
      { title: "Calls", numeric: true, of: ({ calls }) => number(calls) },
      { title: "Errors", numeric: true, of: ({ calls, failed }) => (calls ? `${Math.round((failed / calls) * 1000) / 10} %` : UNKNOWN) },
      { title: "First token", numeric: true, of: (provider) => span(provider.first_token_s) },
      { title: "Newest failure", grow: true, of: ({ problem, problem_at: at }) => cut(problem && `${moment(at)} ${problem}`) },
    ];
  }

  /** A wait holds for what it was said to: other models and calls may be answered meanwhile. */
  providerState({ calls, failed, is_failing: failing, wait_until: until }) {
    if (until > this.now) return tag(`asked us to wait ${span(Math.ceil(until - this.now))}`, "warn");
    if (failing) return tag("failing", "bad");
    return calls ? tag("answers", failed >= calls / 5 ? "warn" : "good") : tag("not asked", "");
  }
}

const PARTS = [
  { title: "Part", of: ({ name }) => name },
  { title: "State", of: ({ state }) => tag(state, TONES[state]) },
  { title: "Detail", grow: true, of: ({ detail }) => cut(detail) },
];

const ERRORS = [
  { title: "When", of: (run) => moment(run.created_at) },
  { title: "Run", of: (run) => cut(run.question || run.kind, runAddress(run)) },
  { title: "Error", grow: true, of: ({ problem, state }) => cut(problem || state) },
  { title: "Model", less: true, of: ({ model }) => cut(model) },
  { title: "Key", less: true, of: ({ key }) => cut(key) },
];

function nodeState({ leaving, report }) {
  if (!report) return tag("no answer", "bad");
  const problems = Object.keys(report.problems);
  if (problems.length) return tag(`without ${problems.join(", ")}`, "bad");
  return leaving ? tag("ending", "warn") : tag("up", "good");
}

function partsOf({ nodes, platforms, store, bus }) {
  const problem = (part) => nodes.map(({ report }) => report?.problems[part]).find(Boolean) ?? "";
  const own = [["store", store], ["bus", bus]].map(([name, where]) => ({
    name,
    state: problem(name) ? "down" : where === "none" ? "none" : "connected",
    detail: problem(name) || (where === "none" ? "processes hear of each other through the store" : where),
  }));
  const reasons = { unserved: "no process serves it" };
  return [...own, ...platforms.map(({ name, state, reason }) => ({ name, state, detail: reason || (reasons[state] ?? "") }))];
}

const count = (amount, word, many = `${word}s`) => `${amount} ${amount === 1 ? word : many}`;
