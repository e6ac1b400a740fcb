// The approvals of one run: a quiet line each in its conversation, and the card that is pinned while it waits.

import { element, make } from "../answer/dom.js";
import { ApprovalCard } from "./card.js";
import { pin, unpin } from "./waiting.js";
import { outcome } from "./words.js";

export class RunApprovals {
  constructor(runId) {
    this.runId = runId;
    this.lines = new Map(); // approval id → {asked, node, said, isOpen, card: while it can be answered here}
  }

  /** The line of a question, for the conversation. `answered`: it was, before this page knew of it. */
  ask(asked, answered = null) {
    const known = this.lines.get(asked.approval_id);
    if (known) return known.node;
    const said = make("span");
    const command = element("code", [asked.command.replace(/\s+/g, " ")]);
    command.title = asked.command;
    const node = element("p", [said, " ", command], "approval");
    const line = { asked, node, said, isOpen: true };
    this.lines.set(asked.approval_id, line);
    if (answered) this.settle(line, outcome(asked, answered));
    else {
      said.textContent = "Waiting for an approval";
      node.dataset.state = "waiting";
      line.card = new ApprovalCard(asked, this.runId);
      pin(line.card, node);
    }
    return node;
  }

  /** Whether a person has to decide before the run goes on. */
  get waits() {
    return [...this.lines.values()].some(({ isOpen }) => isOpen);
  }

  answered(event) {
    const line = this.lines.get(event.approval_id);
    if (!line) return;
    const pressed = line.card?.pressed ?? "";
    const late = pressed && pressed !== event.decision ? " (your answer came too late)" : "";
    this.settle(line, outcome(line.asked, event) + late);
  }

  /** The run has ended: what is still open will not be answered. */
  end() {
    for (const line of this.lines.values()) if (line.isOpen) this.settle(line, "Not answered");
  }

  /** The run is drawn anew. */
  forget() {
    for (const id of this.lines.keys()) unpin(id);
    this.lines.clear();
  }

  settle(line, words) {
    line.isOpen = false;
    line.said.textContent = words;
    line.node.dataset.state = "answered";
    unpin(line.asked.approval_id, words);
  }
}
