// A step: its row in the overview with state and time, and its card, which has for each of its iterations the text as it
// streams, the tries and the output.

import { AnswerText } from "../answer/answer_text.js";
import { element, link, make } from "../answer/dom.js";
import { tokens } from "../answer/words.js";
import { wordsOf } from "../net/api.js";

const MARKS = { pending: "○", running: "●", retrying: "↻", finished: "✓", failed: "✗", cancelled: "–", paused: "‖" };
const WORST_FIRST = ["failed", "retrying", "running", "cancelled", "finished", "pending"];
const ORDER = new Intl.Collator("en", { numeric: true }); // [2] before [10]
const SHORT = /^\S.{0,59}$/;

export class StepCard {
  /** `items()`: what its iterations are for. */
  constructor({ id, parent, name, title, handler, prompt }, items, signal) {
    this.iterations = new Map();
    this.items = items;
    this.handler = handler;
    this.isForEach = id === `${parent}.${name}`; // no branch leaves it out
    const waits = handler === "wait_signal";
    const isKnown = waits && !title.includes("{{"); // else a template makes the signal's name
    this.answer = isKnown ? new SignalForm(title.slice(handler.length + 1), signal) : null;
    this.works = waits ? "waiting" : "running";
    this.marks = [make("span", "graph-mark"), make("span", "graph-mark")];
    for (const mark of this.marks) mark.setAttribute("aria-hidden", "true");
    this.states = [make("span", "graph-step-state"), make("span", "graph-step-state")];
    this.time = make("span", "graph-step-time");
    this.row = element("button", [this.marks[0], element("span", [name], "graph-row-name"), this.states[0], this.time], "graph-row");
    this.row.type = "button";
    this.rows = make("div", "graph-iterations");
    const head = element("div", [this.marks[1], element("b", [name]), element("span", [title || handler], "graph-handler"), this.states[1]], "graph-step-head");
    const asked = prompt?.length > 200 ? folded("Prompt", prompt) : element("p", [prompt ?? ""], "graph-prompt");
    this.node = element("section", [head, asked, this.rows, this.answer?.node ?? ""], "graph-step");
    this.node.setAttribute("aria-label", `step ${name}`);
    this.tell("pending");
  }

  /** Whether the whole instance is paused. A turn of the agent goes on to its end. */
  pause(isPaused) {
    this.isPaused = isPaused && this.handler !== "agent";
    if (this.iterations.size) this.changed();
  }

  get isOpen() {
    return this.state === "running" || this.state === "retrying";
  }

  choose(chosen) {
    this.node.hidden = !chosen;
    if (chosen) this.row.setAttribute("aria-current", "step");
    else this.row.removeAttribute("aria-current");
    if (chosen) this.draw(); // what came while it was not in view
  }

  /** A question of a turn of the agent comes and goes in its own time. */
  tellAsking() {
    if (this.isAsking !== (this.isAsking = !!this.rows.querySelector(".approval-card"))) this.changed();
  }

  /** What the graph says before the events come. */
  expect(state) {
    if (!this.iterations.size) this.tell(state);
  }

  iteration(key) {
    let found = this.iterations.get(key);
    if (!found) {
      found = new Iteration(key, this.items()[parseInt(key.slice(1))], () => this.changed());
      this.iterations.set(key, found);
      const before = [...this.rows.children].findLast(({ dataset }) => ORDER.compare(dataset.key, key) < 0);
      if (before) before.after(found.node);
      else this.rows.prepend(found.node);
    }
    return found;
  }

  changed() {
    const states = [...this.iterations.values()].map(({ state }) => state);
    this.tell(WORST_FIRST.find((state) => states.includes(state)) ?? "pending", states);
  }

  tell(state, states = []) {
    this.state = state;
    this.answer?.offer([state, ...states].includes("running"));
    const shown = this.isPaused && this.isOpen ? "paused" : state;
    for (const node of [this.node, this.row]) node.dataset.state = shown;
    for (const mark of this.marks) mark.textContent = MARKS[shown] ?? "–";
    const done = states.filter((one) => one === "finished").length;
    const all = states.length && Math.max(states.length, this.isForEach && this.items().length);
    const word = shown === "running" ? this.works : shown;
    for (const node of this.states) node.textContent = this.isAsking ? "asking" : all > 1 ? `${done} of ${all} done` : word;
  }

  /** The instance has. */
  end(state) {
    this.answer?.offer(false);
    if (this.state === "pending") this.tell(state === "completed" ? "not taken" : "not reached");
    for (const one of this.iterations.values()) if (one.state === "running" || one.state === "retrying") one.become("cancelled");
  }

  draw() {
    for (const one of this.iterations.values()) one.draw();
  }
}

/** How a person answers a step that waits for a signal: its button, and a box for what goes with it. */
class SignalForm {
  constructor(name, signal) {
    this.payload = make("input");
    this.payload.placeholder = '{"note": "fine"}';
    this.send = element("button", [`Send ${name}`], "primary");
    this.refused = make("p", "refused");
    this.refused.setAttribute("role", "alert");
    const label = element("label", ["Payload: a JSON object, or nothing", this.payload]);
    this.node = element("form", [label, this.send, this.refused], "why");
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer(name, signal);
    });
  }

  /** Called whenever the step has moved: it may wait once more. */
  offer(waits) {
    this.node.hidden = !waits;
    this.send.disabled = false;
    this.refused.textContent = "";
  }

  async answer(name, signal) {
    const payload = objectIn(this.payload.value.trim() || "{}");
    this.refused.textContent = payload ? "" : "Nothing was sent: the payload is not a JSON object.";
    if (!payload) return;
    this.send.disabled = true; // until the step moves: a second signal would wait for another step
    try {
      await signal({ signal: name, payload });
      this.payload.value = "";
    } catch (error) {
      this.refused.textContent = wordsOf(error);
      this.send.disabled = false;
    }
  }
}

class Iteration {
  constructor(key, item, changed) {
    this.changed = changed;
    this.state = "pending";
    this.text = null;
    this.note = make("p", "note");
    this.said = make("div", "graph-said");
    const label = key ? [element("span", [nameOf(key, item)], "graph-iteration-key")] : [];
    this.node = element("div", [...label, this.said, this.note], "graph-iteration");
    this.node.dataset.key = key;
  }

  become(state, { number = 1, error = null, retry_at: retryAt = null } = {}) {
    this.state = state;
    const tries = number > 1 ? `try ${number}` : "";
    const wait = retryAt ? `next try at ${new Date(retryAt * 1000).toLocaleTimeString()}` : "";
    this.note.textContent = [tries, error?.message, wait].filter(Boolean).join(": ");
    this.note.dataset.state = state;
    this.changed();
  }

  add(piece, attempt) {
    if (!this.text) {
      this.text = new AnswerText();
      this.said.append(this.text.node);
    }
    this.text.add(piece, attempt);
    if (this.state === "pending") this.become("running");
  }

  withdraw(attempt) {
    this.text?.withdraw(attempt);
  }

  /** An answer of a model is shown as its text; any other output as it is, folded where it is long. */
  finish(output) {
    const content = output?.message?.content;
    if (typeof content === "string" && !this.text) this.add(content, 1);
    const facts = [output?.provider && `${output.provider}/${output.model}`, tokens(output?.usage)].filter(Boolean);
    if (content === undefined && output !== null && output !== undefined) this.said.append(whole(output));
    this.become("finished");
    this.note.textContent = facts.join(" · ");
    if (output?.run_id) this.note.append(facts.length ? " · " : "", link("Its run", `/?run=${encodeURIComponent(output.run_id)}`));
  }

  draw() {
    this.text?.draw();
  }
}

/** People count from one: `[0][2]` is iteration 1.3. A short item names it. */
function nameOf(key, item) {
  const place = key.match(/\d+/g).map((index) => Number(index) + 1).join(".");
  return Object(item) !== item && SHORT.test(item ?? "") ? `${place} · ${item}` : `iteration ${place}`;
}

function whole(output) {
  const text = textOf(output);
  return text.length < 400 ? scrolled(text) : folded("Output", text);
}

export const folded = (title, value) => element("details", [element("summary", [title]), scrolled(textOf(value))], "folded");

function scrolled(text) {
  const pre = element("pre", [text]);
  pre.tabIndex = 0;
  return pre;
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Null where it is anything else. */
function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return value instanceof Object && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
