// The tool calls of one run, by their index: being written, waiting, running, ended.

import { onceSeen } from "../next_frame.js";
import { ToolCard } from "./tool_card.js";

export class ToolCards {
  /** The cards go to the end of `body`. `load(query)`: the run's state; null where there is no server to ask, and so is
   *  `openRun`. */
  constructor(body, load, openRun = null) {
    this.body = body;
    this.load = load;
    this.openRun = openRun;
    this.cards = new Map();
    this.open = new Set(); // those that have not ended
    this.outcomes = null;
  }

  write({ tool_name: name, index, text }) {
    const card = this.cards.get(index) ?? this.make(name, index);
    card.write(text);
    return card;
  }

  /** Calls that were being written and have come to nothing: another attempt makes them anew. */
  dropWritten() {
    for (const card of this.open) if (card.state === "writing") this.remove(card);
  }

  /** A call is whole. One that was not seen being written has its card when it begins. */
  recorded({ index, call }) {
    this.cards.get(index)?.recorded(parsed(call.arguments));
  }

  begin(event) {
    const index = event.index ?? 0;
    const known = this.cards.get(index);
    const card = known ?? this.make(event.tool_name, index);
    card.begin(event);
    if (known && followedByApproval(card.node)) this.body.append(card.node); // it runs after the question about it
    return card;
  }

  end(event, output) {
    const card = this.cards.get(event.index ?? 0);
    if (!card) return null;
    if (output?.tool_name === event.tool_name) card.know(output);
    card.end(event);
    this.open.delete(card);
    return card;
  }

  hide(index) {
    const card = this.cards.get(index);
    if (card) card.node.hidden = true;
  }

  /** The run has ended: what has not ended by itself never will. */
  interrupt() {
    this.dropWritten();
    for (const card of this.open) card.interrupt();
    this.open.clear();
  }

  progress(index, line) {
    this.cards.get(index)?.progress(line);
  }

  /** The call is a run of its own, or goes on as one. */
  beginRun(index, id, steps = []) {
    this.cards.get(index)?.beginRun(id, steps, this.openRun);
  }

  step(index, text) {
    this.cards.get(index)?.step(text);
  }

  /** What they do now, in words; "" where none runs. */
  doing() {
    const running = [...this.open].filter((card) => card.state === "running");
    if (running.length > 1) return `Running ${running.length} tools`;
    return running.length ? `Running ${running[0].name}` : "";
  }

  make(name, index) {
    const card = new ToolCard(name, this.load && (() => this.outcomeOf(index)));
    card.index = index;
    this.cards.set(index, card);
    this.open.add(card);
    this.body.append(card.node);
    return card;
  }

  remove(card) {
    card.node.remove();
    this.cards.delete(card.index);
    this.open.delete(card);
  }

  // ── outputs that did not come with the events ────────────────────────────────────────────────────────────

  /** Asked for once for all calls that have ended by now. */
  async outcomeOf(index) {
    this.outcomes ??= this.load("outputs=true").then(
      ({ outputs }) => new Map((outputs ?? []).map((outcome) => [outcome.index, outcome])),
    );
    try {
      const known = await this.outcomes;
      if (!known.has(index)) this.outcomes = null;
      return known.get(index) ?? null;
    } catch (error) {
      this.outcomes = null;
      throw error;
    }
  }

  /** Tells of each call how it ended as soon as `shown` is near the screen: an exit code, lines written. */
  tellOutcomes(shown) {
    const ended = [...this.cards.values()].filter((card) => !card.outcome && !this.open.has(card));
    if (!this.load || !ended.length) return;
    onceSeen(shown, () => {
      for (const card of ended) this.outcomeOf(card.index).then((outcome) => outcome && card.know(outcome), () => {});
    });
  }
}

/** The arguments of a call; null where they are not an object. */
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function followedByApproval(node) {
  for (let next = node.nextSibling; next; next = next.nextSibling) if (next.className === "approval") return true;
  return false;
}
