// An instance of a sequence as it was seen: a card for each step, in which its model's text grows.

import { make } from "./dom.js";
import { pretty } from "./words.js";

export class StepsView {
  constructor() {
    this.node = make("article", "steps");
    this.cards = new Map();
    this.dirty = new Set();
  }

  card(id) {
    let card = this.cards.get(id);
    if (!card) {
      const state = make("span", "step-state");
      const text = make("pre", "");
      card = { state, text, pieces: [], node: make("section", "step-card", make("h3", "", id, state), text) };
      card.node.setAttribute("aria-label", id);
      this.cards.set(id, card);
      this.node.append(card.node);
    }
    return card;
  }

  apply(event) {
    switch (event.type) {
      case "step_started":
        return this.become(event.block_id, event.number > 1 ? `try ${event.number}` : "running");
      case "step_finished":
        if (!this.card(event.block_id).pieces.length) this.show(event.block_id, pretty(event.output));
        return this.become(event.block_id, "finished");
      case "step_failed":
        return this.become(event.block_id, event.retry_at ? "waits for its next try" : "failed");
      case "step_cancelled":
        return this.become(event.block_id, "cancelled");
      case "llm_delta":
        this.card(event.block_id).pieces.push([event.attempt ?? 1, event.delta]);
        return this.dirty.add(event.block_id);
      case "attempt_discarded":
        if (event.block_id) this.withdraw(event.block_id, event.attempt ?? 1);
        return undefined;
      case "snapshot":
        return this.restore(event);
      default:
        return undefined;
    }
  }

  become(id, state) {
    const card = this.card(id);
    card.state.textContent = state;
    card.node.dataset.state = state;
  }

  show(id, text) {
    this.card(id).pieces = [[0, text]];
    this.dirty.add(id);
  }

  withdraw(id, attempt) {
    const card = this.card(id);
    card.pieces = card.pieces.filter(([by]) => by !== attempt);
    this.dirty.add(id);
  }

  restore({ steps = [] }) {
    for (const { block_id: id, state = "running", text, output } of steps) {
      this.show(id, text?.text || pretty(output));
      this.become(id, state);
    }
  }

  draw() {
    for (const id of this.dirty) {
      const { text, pieces } = this.card(id);
      text.textContent = pieces.map(([, piece]) => piece).join("");
    }
    this.dirty.clear();
  }
}
