// One run on the screen: the same fold over its events that the server does, and the nodes that show it.

import { render } from "./markdown.js";

const CHOICES = [
  ["once", "Approve once"],
  ["session", "Approve for session"],
  ["always", "Always"],
  ["deny", "Deny"],
];
const ENDINGS = {
  failed: "The run failed",
  incomplete: "The answer is incomplete",
  stopped: "Stopped",
  parked: "Set aside",
};

export class RunView {
  /** `answer(approvalId, decision)` is called when the user decides; it resolves to whether the server accepted it. */
  constructor(question, answer) {
    this.answer = answer;
    this.seq = 0;
    this.status = "running";
    this.node = make("article", "run");
    if (question) {
      const asked = make("div", "question");
      asked.textContent = question;
      this.node.append(asked);
    }
    this.body = make("div", "answer");
    this.setBusy(true);
    this.note = make("p", "note");
    this.actions = make("div", "choices actions");
    this.actions.hidden = true;
    this.node.append(this.body, this.note, this.actions);
    this.reset();
  }

  get ended() {
    return this.status !== "running";
  }

  setBusy(busy) {
    this.busy = busy;
    this.body.setAttribute("aria-busy", String(busy));
  }

  reset() {
    this.body.replaceChildren();
    this.texts = [];
    this.open = null;
    this.tools = new Map();
    this.approvals = new Map();
    this.dirty = new Set();
  }

  /** A button below the answer; buttons are shown once the run has ended. */
  offer(label, action) {
    const button = make("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => action(button));
    this.actions.append(button);
  }

  /** A link to another conversation: above what is said here, or below it. */
  link(words, href, { above = false } = {}) {
    const line = make("p", "fork");
    const anchor = make(href ? "a" : "span");
    if (href) anchor.href = href;
    anchor.textContent = words;
    line.append(anchor);
    if (above) this.node.prepend(line);
    else this.node.append(line);
  }

  /** What a fork has from the conversation that it came from, folded away. */
  inherit(messages) {
    const earlier = make("details", "earlier");
    const summary = make("summary");
    summary.textContent = "Earlier conversation";
    earlier.append(summary);
    for (const { role, parts = [] } of messages) {
      const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
      if (!text || role === "tool") continue;
      const said = make("div", role === "user" ? "question" : "message");
      if (role === "user") said.textContent = text;
      else render(said, text);
      earlier.append(said);
    }
    this.node.prepend(earlier);
  }

  apply(event) {
    if (event.seq !== undefined) this.seq = event.seq;
    switch (event.type) {
      case "snapshot":
        return this.restore(event);
      case "message_chunk":
        this.note.textContent = "";
        return this.add(event.text, event.attempt);
      case "message_stop":
        this.open = null;
        return undefined;
      case "commentary":
        this.add(event.text, event.attempt);
        this.open = null;
        return undefined;
      case "tool_call_chunk":
        return this.tool(event);
      case "tool_call_finished":
        return this.toolEnded(event);
      case "attempt_discarded":
        return this.withdraw(event.attempt);
      case "approval_asked":
        return this.ask(event);
      case "approval_answered":
        return this.decided(event.approval_id, event.decision);
      case "history_compressed":
        if (event.seq === 2) this.inherit(event.messages); // else a long conversation was summarised
        return undefined;
      case "gateway_notice":
        this.note.textContent = event.text;
        return undefined;
      case "run_finished":
        return this.finish(event.status, event.error);
      default:
        return undefined; // facts for the history, and whatever is yet to be invented
    }
  }

  /** Puts what has changed on the screen; once per frame is enough. */
  draw() {
    for (const text of this.dirty) render(text.node, text.pieces.map(([, piece]) => piece).join(""));
    this.dirty.clear();
    if (this.busy && this.ended) this.setBusy(false); // only now is all of it to be seen
  }

  add(piece, attempt = 1) {
    if (!this.open) {
      this.open = { node: make("div", "message"), pieces: [] };
      this.texts.push(this.open);
      this.body.append(this.open.node);
    }
    this.open.pieces.push([attempt, piece]);
    this.dirty.add(this.open);
  }

  withdraw(attempt) {
    for (const text of this.texts) {
      text.pieces = text.pieces.filter(([by]) => by !== attempt);
      this.dirty.add(text);
    }
  }

  tool(event) {
    const row = make("p", "tool");
    row.textContent = `${event.tool_name} ${event.preview ?? ""}`.trim();
    row.dataset.state = "running";
    this.tools.set(event.index ?? 0, row);
    this.body.append(row);
    this.open = null;
  }

  toolEnded(event) {
    const row = this.tools.get(event.index ?? 0);
    if (!row) return;
    row.dataset.state = event.ok === false ? "failed" : "done";
    row.textContent += event.ok === false ? " — failed" : ` — ${(event.duration ?? 0).toFixed(1)} s`;
  }

  ask(event) {
    const box = make("section", "approval");
    box.setAttribute("aria-label", "Approval");
    const why = make("p");
    why.textContent = `${event.tool_name}: ${event.reason || "needs your approval"}`;
    const what = make("pre");
    what.textContent = event.command;
    const scope = make("p");
    scope.textContent = [
      event.directory && `in ${event.directory}`,
      event.requester && `for ${event.requester}`,
      event.session && `session ${event.session}`,
    ]
      .filter(Boolean)
      .join(", ");
    const buttons = make("div", "choices");
    for (const [decision, label] of CHOICES) {
      const button = make("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", () => this.decide(event.approval_id, decision, buttons));
      buttons.append(button);
    }
    box.append(why, what, scope, buttons);
    this.approvals.set(event.approval_id, box);
    this.body.append(box);
    this.open = null;
  }

  /** Once is enough; the buttons go when the run has heard of it. */
  async decide(id, decision, buttons) {
    for (const button of buttons.childNodes) button.disabled = true;
    const heard = await this.answer(id, decision);
    if (!heard) for (const button of buttons.childNodes) button.disabled = false;
  }

  decided(id, decision) {
    this.settle(id, decision === "deny" ? "Denied" : `Approved (${decision})`);
  }

  settle(id, outcome) {
    const said = make("p");
    said.textContent = outcome;
    this.approvals.get(id)?.querySelector(".choices")?.replaceWith(said);
  }

  restore(state) {
    this.reset();
    const approvals = [...(state.approvals ?? [])];
    for (const item of inOrder(state.messages ?? [], state.tools ?? [])) {
      if (item.tool_name === undefined) {
        this.restoreText(item);
        continue;
      }
      // The state does not say which call was asked about: the first of that tool that was not, yet.
      const at = approvals.findIndex(({ asked, decision }) => decision && asked.tool_name === item.tool_name);
      if (at >= 0) this.restoreApproval(approvals.splice(at, 1)[0]);
      this.tool(item);
      if (item.ok !== undefined && item.ok !== null) this.toolEnded(item);
    }
    for (const approval of approvals) this.restoreApproval(approval);
    if (state.status && state.status !== "running" && state.status !== "pending") this.finish(state.status, state.error);
    this.draw(); // with the frame that shows its tools
  }

  restoreApproval({ asked, decision }) {
    this.ask(asked);
    if (decision) this.decided(asked.approval_id, decision);
  }

  restoreText(text) {
    const characters = [...(text.text ?? "")]; // lengths count characters, not UTF-16 units
    let start = 0;
    for (const [attempt, length] of text.pieces ?? [[1, characters.length]]) {
      this.add(characters.slice(start, start + length).join(""), attempt);
      start += length;
    }
    if (text.stopped) this.open = null;
  }

  finish(status, error) {
    this.status = status;
    this.actions.hidden = false;
    this.note.textContent = "";
    if (ENDINGS[status]) this.note.textContent = error?.message ? `${ENDINGS[status]}: ${error.message}` : ENDINGS[status];
    for (const id of this.approvals.keys()) this.settle(id, "Not answered");
    for (const row of this.tools.values()) if (row.dataset.state === "running") row.dataset.state = "failed";
  }
}

/** Texts and tools as they came: a text stands before the tools that its attempt asked for, after those of earlier ones. */
function inOrder(texts, tools) {
  const items = [];
  let next = 0;
  for (const text of texts) {
    const attempt = text.pieces?.[0]?.[0] ?? 1;
    while (next < tools.length && (tools[next].attempt ?? 1) < attempt) items.push(tools[next++]);
    items.push(text);
  }
  return [...items, ...tools.slice(next)];
}

export function make(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}
