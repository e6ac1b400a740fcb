// An instance of a sequence: `/?instance=ID`. The graph lights up, each step streams in its card; a connection that
// breaks is taken up again after the last event that was seen.

import { button, element, link, make } from "../answer/dom.js";
import { dollars, elapsed, seconds, tokens } from "../answer/words.js";
import { startInbox } from "../approvals/inbox.js";
import { post, read, wordsOf } from "../net/api.js";
import { follow } from "../net/follow.js";
import { withStreamSlot, tellState } from "../net/with_stream_slot.js";
import { atNextFrame } from "../next_frame.js";
import { notShown, waysBack } from "../not_shown.js";
import { GraphView } from "./graph_view.js";

const TIMES_MS = 300;
const ENDED = new Set(["completed", "failed", "cancelled"]);

export async function openInstance(address = new URLSearchParams(location.search)) {
  const root = make("main");
  root.id = "instance";
  document.body.dataset.view = "instance";
  document.body.append(root);
  await new InstanceView(root, address.get("instance")).open();
}

class InstanceView {
  constructor(root, id) {
    this.id = id;
    this.path = `/instances/${encodeURIComponent(id)}`;
    this.seq = 0;
    this.hasAll = false;
    this.state = "";
    this.facts = [];
    this.drawing = false;
    this.status = make("p", "instance-status");
    this.status.setAttribute("role", "status");
    this.badge = make("span", "instance-badge");
    this.time = make("span", "instance-facts");
    this.controls = make("div", "choices");
    this.failure = make("div", "instance-failure");
    this.failure.setAttribute("role", "alert");
    this.heading = make("h1");
    const bar = element("nav", [...waysBack(), this.status], "instance-bar");
    bar.setAttribute("aria-label", "Tailrace");
    const head = element("header", [element("div", [this.heading, this.badge, this.time], "instance-title"), this.controls]);
    this.body = make("div", "instance-graph");
    root.append(bar, head, this.failure, this.body);
    this.bar = bar;
  }

  async open() {
    try {
      const [instance, graph] = await Promise.all([read(this.path), read(`${this.path}/graph`)]);
      this.instance = instance;
      this.heading.textContent = instance.name;
      document.title = `${instance.name} · Tailrace`;
      this.graph = new GraphView(graph, instance, (body) => this.signal(body));
      this.body.append(this.graph.node);
      this.become(instance.state);
      startInbox(this.bar, (asked) => asked.instance_id === this.instance.id && this.graph.at(asked.block_id)?.said);
      this.tick();
      this.ticking = setInterval(() => this.tick(), 1000);
      await this.follow();
    } catch (error) {
      if (this.instance) this.failure.textContent = wordsOf(error);
      else this.body.replaceChildren(notShown("instance", this.id, error));
    }
  }

  async follow() {
    const place = () => [`${this.path}/stream`, this.seq ? { "Last-Event-ID": String(this.seq) } : {}];
    const wanted = () => !this.hasAll;
    const open = new AbortController(); // as long as the page
    const hold = (signal) =>
      follow({ place, hear: (event) => this.hear(event), wanted, say: (words) => this.say(words), signal });
    const refusal = await withStreamSlot("stream", open.signal, hold, () => this.state !== "paused");
    if (refusal) throw refusal;
    clearInterval(this.ticking);
    await this.finish();
  }

  hear({ event, data, id }) {
    const entry = JSON.parse(data);
    this.hasAll = event === "missed" || entry.type === "done"; // it has ended, and nothing is new
    if (event === "missed") return;
    this.seq = Number(id) || this.seq;
    this.apply(entry);
  }

  apply(event) {
    if (event.type === "state") this.become(event.state);
    else if (event.type === "done") this.end(event);
    else this.graph.apply(event);
    if (event.type === "output" || event.type === "snapshot") this.readTimesSoon();
    if (event.type === "snapshot") this.become(event.state);
    this.draw();
  }

  /** At most once per frame, whatever arrives in between. */
  draw() {
    if (this.drawing) return;
    this.drawing = true;
    atNextFrame(() => {
      this.drawing = false;
      this.graph.draw();
    });
  }

  become(state) {
    this.state = state;
    this.badge.textContent = state;
    this.badge.dataset.state = state;
    this.graph.pause(state === "paused");
    tellState();
    this.offer();
  }

  end({ state, error }) {
    this.become(state);
    this.graph.end(state);
    if (error) this.failure.textContent = error.message;
  }

  /** How long the steps took, and what all cost: asked for when one has ended, once for those that end together. */
  async readTimes() {
    const { items, usage, cost_usd: usd } = await read(`/runs/${encodeURIComponent(this.instance.id)}/timeline`);
    this.facts = [tokens(usage), dollars(usd)];
    this.tick();
    const spans = new Map(); // step → when its first iteration began, and its last one ended
    for (const { kind, block_id: id = "", start, end } of items) {
      if (kind !== "step" || start === undefined || end === undefined) continue;
      const step = id.replace(/\[\d+\]/g, "");
      const [began, ended] = spans.get(step) ?? [start, end];
      spans.set(step, [Math.min(began, start), Math.max(ended, end)]);
    }
    this.graph.tellTimes(new Map([...spans].map(([step, [began, ended]]) => [step, ended - began])));
  }

  readTimesSoon() {
    clearTimeout(this.timing);
    this.timing = setTimeout(() => this.readTimes().catch(() => {}), TIMES_MS);
  }

  /** What an ended instance says of itself beyond its events. */
  async finish() {
    this.instance = await read(this.path);
    this.readTimesSoon();
    this.tick();
  }

  tick() {
    const { created_at: began, finished_at: ended } = this.instance;
    const took = ended ? seconds(Math.max(0, ended - began)) : elapsed(Date.now() / 1000 - began);
    this.time.textContent = [took, ...this.facts].filter(Boolean).join(" · ");
    this.graph.tellAsking();
  }

  // ── what people do ──────────────────────────────────────────────────────────────────────────────────────

  offer() {
    const buttons = [];
    if (this.state === "paused") buttons.push(this.sends("Resume", "resume"));
    else if (!ENDED.has(this.state)) buttons.push(this.sends("Pause", "pause"));
    if (!ENDED.has(this.state)) buttons.push(this.sends("Cancel", "cancel"));
    if (this.state === "failed") buttons.push(this.acts("Retry", () => this.retry()));
    if (this.instance?.id) buttons.push(link("Inspect", `/?run=${encodeURIComponent(this.instance.id)}`, "way"));
    this.controls.replaceChildren(...buttons);
  }

  sends(label, signal) {
    return this.acts(label, () => this.signal({ signal }));
  }

  signal(body) {
    return post(`${this.path}/signals`, body);
  }

  acts(label, act) {
    return button(label, async (pressed) => {
      pressed.disabled = true;
      try {
        await act();
      } catch (error) {
        this.say(wordsOf(error));
        pressed.disabled = false;
      }
    }, "ops-small");
  }

  /** The new instance goes on at the step that failed; the page goes there. */
  async retry() {
    const { id } = await (await post(`${this.path}/retry`, {})).json();
    location.assign(`/?instance=${encodeURIComponent(id)}`);
  }

  say(words) {
    this.status.textContent = words;
  }
}
