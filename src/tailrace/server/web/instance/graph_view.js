// A sequence as a list of its steps, nested as its blocks are, with states and times; beside it the chosen step. Until a
// person chooses one, it is the one that began last, or one that goes on.

import { element } from "../answer/dom.js";
import { seconds } from "../answer/words.js";
import { folded, StepCard } from "./step_card.js";

const ITERATIONS = /\[\d+\]/g;

export class GraphView {
  /** `signal` sends one, with its payload, to the instance. */
  constructor({ top, nodes, states = {} }, { input, outputs }, signal) {
    this.signal = signal;
    this.names = { input, steps: {} }; // as the expressions of a sequence know them
    for (const [id, output] of Object.entries(outputs)) this.names.steps[id] = { output };
    this.nodes = new Map(nodes.map((node) => [node.id, node]));
    this.cards = new Map(); // of steps, by the node's id
    this.pinned = false; // a person has chosen
    this.steps = element("div", [], "graph-chosen");
    this.steps.tabIndex = 0; // it scrolls
    this.steps.setAttribute("role", "group");
    this.steps.setAttribute("aria-label", "The chosen step");
    const given = Object.keys(input ?? {}).length ? [folded("Input", input)] : [];
    const overview = element("nav", [...given, this.list(top)], "graph-overview");
    overview.setAttribute("aria-label", "Steps");
    this.node = element("div", [overview, this.steps], "graph-panes");
    this.show(this.cards.values().next().value);
    for (const [id, state] of Object.entries(states)) this.cards.get(id)?.expect(state);
  }

  /** Blocks that follow each other. */
  list(ids) {
    return element("ol", ids.map((id) => element("li", [this.block(this.nodes.get(id))])), "graph-list");
  }

  block(node) {
    if (node.type === "step") {
      const card = new StepCard(node, () => this.itemsAround(node), this.signal);
      this.cards.set(node.id, card);
      card.row.addEventListener("click", () => {
        this.pinned = true;
        this.show(card);
      });
      this.steps.append(card.node);
      return card.row;
    }
    const lanes = node.lanes.filter(({ nodes }) => nodes.length).map((lane) => {
      const title = lane.title ? [element("p", [lane.title], "graph-lane-title")] : [];
      return element("div", [...title, this.list(lane.nodes)], "graph-lane");
    });
    const heading = element("p", [element("b", [node.name]), ` ${node.title}`], "graph-block-title");
    const box = element("section", [heading, element("div", lanes, "graph-lanes")], "graph-block");
    box.setAttribute("aria-label", `${node.type} ${node.name}`);
    return box;
  }

  /** What the iterations of a step are for, as far as the page has them or their number. */
  itemsAround({ id }) {
    const [around, ...inner] = id.split(".");
    const { type, title } = this.nodes.get(around);
    if (type !== "for_each" || inner.length > 1) return [];
    const collection = title.slice(title.indexOf(" of ") + 4);
    const items = collection.split(".").reduce((value, name) => value?.[name], this.names);
    return Array.isArray(items) ? items : Array(parseInt(collection) || 0); // "4 items"
  }

  show(chosen) {
    if (!chosen || chosen === this.chosen) return;
    this.chosen = chosen;
    for (const card of this.cards.values()) card.choose(card === chosen);
  }

  /** A step that has ended, unless others go on: then one of those, best one that does not wait for a person. */
  choose(ended) {
    const open = [...this.cards.values()].filter(({ isOpen }) => isOpen);
    if (this.pinned || open.includes(this.chosen)) return;
    this.show(open.findLast(({ works }) => works === "running") ?? open.at(-1) ?? ended);
  }

  /** How long each step took, in seconds, by its id: from the begin of its first iteration to the end of its last. */
  tellTimes(times) {
    for (const [id, card] of this.cards) card.time.textContent = times.has(id) ? seconds(times.get(id)) : "";
  }

  tellAsking() {
    for (const card of this.cards.values()) card.tellAsking();
  }

  /** The card of a step, and which iteration of it: `each[2].card` is iteration `[2]` of `each.card`. */
  at(blockId) {
    const card = this.cardOf(blockId);
    return card && card.iteration((blockId.match(ITERATIONS) ?? []).join(""));
  }

  cardOf(blockId) {
    return this.cards.get(blockId.replace(ITERATIONS, ""));
  }

  apply(event) {
    if (event.type === "snapshot") return this.restore(event);
    const step = event.block_id && this.at(event.block_id);
    if (!step) return undefined; // of a block that holds others
    const card = this.cardOf(event.block_id);
    if (!this.pinned && event.state === "started") this.show(card);
    switch (event.type) {
      case "step":
        return step.become(event.state === "started" ? "running" : event.state, event);
      case "llm_delta":
        return step.add(event.delta, event.attempt ?? 1);
      case "attempt_discarded":
        return step.withdraw(event.attempt ?? 1);
      case "output":
        this.names.steps[event.block_id] = event;
        step.finish(event.output);
        return this.choose(card);
      default:
        return undefined;
    }
  }

  restore({ outputs = {}, texts = {} }) {
    for (const [id, text] of Object.entries(texts)) this.at(id)?.add(text, 1);
    for (const [id, output] of Object.entries(outputs)) this.at(id)?.finish(output);
    const last = Object.keys(outputs).at(-1);
    this.choose(this.cardOf(last ?? ""));
  }

  pause(isPaused) {
    for (const card of this.cards.values()) card.pause(isPaused);
  }

  end(state) {
    for (const card of this.cards.values()) card.end(state);
  }

  draw() {
    for (const card of this.cards.values()) card.draw();
  }
}
