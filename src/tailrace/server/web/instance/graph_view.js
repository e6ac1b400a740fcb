// A sequence as nested boxes: what follows stands below with an arrow, what runs side by side stands side by side.

import { element } from "../answer/dom.js";
import { StepCard } from "./step_card.js";

const BESIDE = new Set(["parallel", "race", "router"]);
const ITERATIONS = /\[\d+\]/g;

export class GraphView {
  constructor({ top, nodes, states = {} }) {
    this.nodes = new Map(nodes.map((node) => [node.id, node]));
    this.cards = new Map(); // of steps, by the node's id
    this.boxes = new Map(); // of blocks that hold others
    this.node = this.list(top);
    for (const [id, state] of Object.entries(states)) this.cards.get(id)?.expect(state);
  }

  /** Blocks that follow each other. */
  list(ids) {
    return element("ol", ids.map((id) => element("li", [this.block(this.nodes.get(id))])), "graph-list");
  }

  block(node) {
    if (node.type === "step") {
      const card = new StepCard(node);
      this.cards.set(node.id, card);
      return card.node;
    }
    const lanes = node.lanes.map((lane) => {
      const title = lane.title ? [element("p", [lane.title], "graph-lane-title")] : [];
      return element("div", [...title, this.list(lane.nodes)], "graph-lane");
    });
    const heading = element("p", [element("b", [node.name]), ` ${node.title}`], "graph-block-title");
    const box = element("section", [heading, element("div", lanes, BESIDE.has(node.type) ? "graph-lanes graph-beside" : "graph-lanes")], "graph-block");
    box.setAttribute("aria-label", `${node.type} ${node.name}`);
    this.boxes.set(node.id, box);
    return box;
  }

  /** The card of a step, and which iteration of it: `each[2].card` is iteration `[2]` of `each.card`. */
  at(blockId) {
    const card = this.cards.get(blockId.replace(ITERATIONS, ""));
    return card && card.iteration((blockId.match(ITERATIONS) ?? []).join(""));
  }

  apply(event) {
    if (event.type === "snapshot") return this.restore(event);
    const step = event.block_id && this.at(event.block_id);
    if (!step) return undefined; // of a block that holds others
    switch (event.type) {
      case "step":
        return step.become(event.state === "started" ? "running" : event.state, event);
      case "llm_delta":
        return step.add(event.delta, event.attempt ?? 1);
      case "attempt_discarded":
        return step.withdraw(event.attempt ?? 1);
      case "output":
        return step.finish(event.output);
      default:
        return undefined;
    }
  }

  restore({ outputs = {}, texts = {} }) {
    for (const [id, text] of Object.entries(texts)) this.at(id)?.add(text, 1);
    for (const [id, output] of Object.entries(outputs)) this.at(id)?.finish(output);
  }

  end() {
    for (const card of this.cards.values()) card.end();
  }

  draw() {
    for (const card of this.cards.values()) card.draw();
  }
}
