// One run on the screen: what its log changes, and the nodes that show it.

import { RunApprovals } from "../approvals/run_approvals.js";
import { iconLink } from "../icons.js";
import { onceSeen } from "../next_frame.js";
import { Activity } from "./activity.js";
import { AnswerText } from "./answer_text.js";
import { make } from "./dom.js";
import { RunEnding } from "./failure.js";
import { drawMarkdown } from "./markdown/growing_markdown.js";
import { Thought } from "./reasoning.js";
import { RunChanges, piecesOf } from "./run_changes.js";
import { VersionSwitch } from "../conversation/versions.js";
import { NextMessages, inputText } from "./next_messages.js";
import { RunFacts } from "./run_facts.js";
import { spokenText } from "./speaker.js";
import { ToolCards } from "./tool_cards.js";

export { make };

export class RunView {
  /**
   * `load(query)` resolves to the run's state and `timeline()` to its timeline, where there is a server to ask; `now()` is
   * the time in seconds. `openRun(id)` makes a node that shows another run.
   */
  constructor(question, { load = null, timeline = null, now = () => Date.now() / 1000, speaker = "", openRun = null } = {}) {
    this.question = question ?? "";
    this.speaker = speaker; // who asked, where several people share the conversation; `question` begins with it
    this.load = load;
    this.openRun = openRun;
    this.timeline = timeline;
    this.now = now;
    this.id = "";
    this.seq = 0;
    this.status = "running";
    this.node = make("article", "run");
    if (question) {
      const asked = make("div", "question");
      asked.textContent = question;
      this.node.append(asked);
    }
    this.body = make("div", "answer");
    this.activity = new Activity(now, Boolean(load));
    this.setBusy(true);
    this.note = make("p", "note");
    this.ending = new RunEnding();
    this.steered = null; // is told what became of a message for this run
    this.next = new NextMessages(load && ((id) => this.takeBack?.(id)));
    this.facts = new RunFacts();
    this.versions = new VersionSwitch();
    this.inspect = iconLink("activity", "Inspect", "");
    this.actions = make("div", "actions");
    this.actions.hidden = true;
    this.node.append(this.body, this.activity.node, this.next.node, this.note, this.ending.node, this.actions, this.facts.node);
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
    this.log = new RunChanges();
    this.texts = [];
    this.open = null;
    this.thought = null;
    this.tools = new ToolCards(this.body, this.load, this.openRun);
    this.output = null; // what was recorded of the tool whose end comes next
    this.approvals?.forget();
    this.approvals = new RunApprovals(() => this.id);
    this.dirty = new Set(); // what has something to draw
    this.attempts = new Map(); // node of the body → the attempt that it is of
    this.asked = new Map(); // approval id → the index of the call that it is about
    this.denials = 0; // of questions from before a reload: their calls are known when they end
    this.next.clear();
  }

  /** The answer as the model wrote it. */
  text() {
    return this.texts.map((text) => text.source().trim()).filter(Boolean).join("\n\n");
  }

  /** What is below the answer once the run has ended. */
  addActions(...nodes) {
    this.actions.append(...nodes);
  }

  /** A form below the answer, in place of the one that was there. */
  openForm(form) {
    this.form?.remove();
    this.form = form;
    this.node.append(form);
    form.first?.focus();
    form.scrollIntoView?.({ block: "nearest" }); // with the button that sends it
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

  /** What a fork has from the conversation that it came from, folded away. Where one person alone speaks in it the model is
   * told no names: what looks like one was typed, and stays as it is. */
  inherit(messages) {
    const earlier = make("details", "earlier");
    const summary = make("summary");
    summary.textContent = "Earlier conversation";
    earlier.append(summary);
    for (const { role, parts = [] } of messages) {
      const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
      if (!text || role === "tool") continue;
      const said = make("div", role === "user" ? "question" : "message");
      if (role === "user") said.textContent = this.speaker ? spokenText(text) : text;
      else drawMarkdown(said, text);
      earlier.append(said);
    }
    this.node.prepend(earlier);
  }

  apply(event) {
    if (event.seq !== undefined) this.seq = event.seq;
    for (const change of this.log.apply(event)) this.take(change);
  }

  take(change) {
    switch (change.change) {
      case "TextGrew":
        return this.grow(change);
      case "ThoughtGrew":
        return change.ends ? this.endThought() : this.think(change.text);
      case "TextWithdrawn":
        return this.withdraw(change);
      case "CallWritten":
        return change.call ? this.tools.recorded(change) : this.writeCall(change);
      case "CallRuns":
        return this.tool(change);
      case "CallEnded":
        if (change.output) this.output = change.output;
        else this.toolEnded({ ...change, duration: change.duration_s });
        return undefined;
      case "Asked":
        this.asked.set(change.question.approval_id, change.index);
        this.ask(change.question, null, change.attempt);
        return this.tellDoing();
      case "Answered":
        this.approvals.answered(change.answer);
        this.tellDenial(change.answer, this.asked.get(change.answer.approval_id));
        return this.tellDoing();
      case "Steered":
        this.steer(change.steer);
        return this.steered?.(change.steer);
      case "Ended":
        return this.end(change.finished);
      default:
        return this.takeNotice(change);
    }
  }

  /** What happens beside texts, calls and questions; a kind that the page does not know shows nothing. */
  takeNotice({ change, seq, asked, ...more }) {
    switch (change) {
      case "Restored":
        return this.restore(more.state);
      case "RunBegan":
        this.startedAt = more.started.at;
        return this.activity.began(more.started.at);
      case "AttemptBegan":
        this.ending.attempt(asked);
        this.parked = false;
        this.facts.know({ model: [asked.provider, asked.model].filter(Boolean).join("/") });
        if (asked.previous_failure) this.note.textContent = `The try before failed: ${asked.previous_failure}`;
        return this.activity.attempt(asked);
      case "MessageJoined":
        if (more.message.role !== "assistant") return undefined;
        this.ending.answered = true;
        return this.activity.answered();
      case "HistoryReplaced":
        if (seq === 2) this.inherit(more.messages); // else a long conversation was summarised
        return undefined;
      case "SubRunBegan":
        return this.tools.beginRun(more.index, more.run_id);
      case "UserNotice":
        return this.notice(more);
      default:
        return undefined;
    }
  }

  /** Puts what has changed on the screen; once per frame is enough. */
  draw() {
    for (const part of this.dirty) part.draw();
    this.dirty.clear();
    if (this.busy && this.ended) this.setBusy(false); // only now is all of it to be seen
  }

  // ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

  grow({ text, ends, commentary, attempt }) {
    if (text && !commentary) this.note.textContent = "";
    if (text || !ends) this.add(text, attempt);
    if (ends) this.open = null;
  }

  add(piece, attempt = 1) {
    this.endThought();
    this.activity.text();
    if (!this.open) {
      this.settleLast();
      this.open = new AnswerText();
      this.texts.push(this.open);
      this.body.append(this.open.node);
      this.attempts.set(this.open.node, attempt);
    }
    this.open.add(piece, attempt);
    this.dirty.add(this.open);
  }

  settleLast() {
    const last = this.texts.at(-1);
    last?.settle();
    if (last) this.dirty.add(last);
  }

  withdraw({ attempt, discarded = true, reason, retry_at: retryAt }) {
    this.tools.dropWritten();
    if (discarded) this.activity.failed(reason, retryAt);
    for (const text of discarded ? this.texts : []) {
      text.withdraw(attempt);
      this.dirty.add(text);
    }
  }

  think(piece) {
    if (!this.thought || this.thought.ended) {
      if (!piece.trim()) return; // some models send blank thoughts
      this.thought = new Thought(this.now);
      this.body.append(this.thought.node);
      this.open = null;
      this.activity.rest(); // the thought itself says how long it takes
      this.activity.thought = this.thought;
    }
    this.thought.add(piece);
    this.dirty.add(this.thought);
  }

  endThought(known = true) {
    if (!this.thought || this.thought.ended) return;
    this.thought.end(known);
    this.dirty.add(this.thought);
    this.activity.thought = null;
    this.activity.set("Thinking");
  }

  /** What each attempt thought, before what it said and did. */
  restoreReasoning(text, pieces, isRunning) {
    const source = typeof text === "string" ? text : (text?.text ?? "");
    const thoughts = [];
    for (const [attempt, thought] of piecesOf({ text: source, pieces: pieces ?? text?.pieces })) {
      if (!thought.trim()) continue;
      this.think(thought);
      const after = [...this.body.childNodes].find((node) => this.attempts.get(node) >= attempt);
      after?.before(this.thought.node);
      thoughts.push(this.thought);
      if (after || !isRunning) this.endThought(false);
    }
    if (thoughts.length) this.tellThinkingTimes(thoughts);
  }

  /** How long each thought took, from the run's timeline, once the run is near the screen. */
  tellThinkingTimes(thoughts) {
    if (!this.timeline) return;
    onceSeen(this.node, async () => {
      const { items } = await this.timeline().catch(() => ({ items: [] }));
      const known = items.filter(({ kind, end }) => kind === "reasoning" && end !== undefined);
      if (known.length === thoughts.length) known.forEach(({ start, end }, at) => thoughts[at].ended && thoughts[at].tell(end - start));
    });
  }

  // ── messages for the run ─────────────────────────────────────────────────────────────────────────────────

  /** It waits, or stands where the model was given it. */
  steer({ accepted, state }) {
    const text = inputText(accepted.input);
    const words = this.speaker ? spokenText(text) : text;
    if (!state) {
      this.next.add(accepted, words);
      return;
    }
    this.next.remove(accepted.steer_id);
    if (state !== "committed") return;
    this.endThought();
    this.open = null;
    const said = make("div", "question");
    said.textContent = words;
    this.body.append(said);
  }

  // ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

  writeCall(event) {
    this.endThought();
    this.open = null;
    const card = this.tools.write(event);
    this.attempts.set(card.node, event.attempt ?? 1);
    this.dirty.add(card);
    this.activity.set(`Writing a call of ${event.tool_name}`);
  }

  tool(event) {
    this.open = null;
    const card = this.tools.begin(event);
    this.attempts.set(card.node, event.attempt ?? 1);
    this.dirty.add(card);
    this.tellDoing();
  }

  toolEnded(event) {
    const output = this.output;
    this.output = null;
    if (this.denials && output?.not_executed) {
      this.denials--;
      this.tools.hide(event.index ?? 0);
    }
    const card = this.tools.end(event, output);
    if (card) this.dirty.add(card);
    this.tellDoing();
  }

  /** What is done now. Nothing is where a question is open and no tool runs beside it: the run waits for a person. */
  tellDoing() {
    const doing = this.tools.doing();
    if (!doing && this.approvals.waits) this.activity.rest();
    else this.activity.set(doing || "Thinking");
  }

  notice({ kind, text, extra }) {
    this.parked ||= kind === "parked"; // no one executes it until an operator lets it go on
    if (kind !== "tool_progress") this.note.textContent = text;
    else if (extra.run_id) this.tools.step(extra.index, text);
    else this.tools.progress(extra.index, text);
  }

  // ── approvals ────────────────────────────────────────────────────────────────────────────────────────────

  ask(asked, answered = null, attempt = 1) {
    const line = this.approvals.ask(asked, answered);
    this.attempts.set(line, attempt);
    this.body.append(line);
    this.open = null;
  }

  /** The line of the question tells of a denial, with its reason: the card of the call would tell it again. */
  tellDenial({ decision }, index) {
    if (decision !== "deny") return;
    if (index === undefined) this.denials++;
    else this.tools.hide(index);
  }

  // ── the state of a run that was not watched from its beginning ───────────────────────────────────────────

  restore(state) {
    this.reset();
    this.log.restore(state);
    this.activity.began(state.started?.at ?? state.created_at);
    this.startedAt = state.started?.at;
    const asked = approvalsByCall(state.approvals ?? [], state.tools ?? []);
    const steers = [...(state.steers ?? [])];
    const steersBefore = (texts) => {
      while (steers.length && (steers[0].after ?? 0) <= texts) this.steer(steers.shift());
    };
    let texts = 0;
    for (const item of inOrder(state.messages ?? [], state.tools ?? [])) {
      if (item.tool_name === undefined) {
        steersBefore(texts++);
        this.restoreText(item);
        continue;
      }
      for (const approval of asked.get(item) ?? []) this.restoreApproval(approval, item.attempt);
      this.tool(item);
      if (item.run_id) this.tools.beginRun(item.index ?? 0, item.run_id, item.steps);
      for (const approval of asked.get(item) ?? []) this.tellDenial(approval, item.index ?? 0);
      if (item.ok !== undefined && item.ok !== null) this.toolEnded(item);
    }
    for (const approval of asked.get(null)) this.restoreApproval(approval, Infinity);
    steersBefore(Infinity);
    for (const { arguments: text = "", index = 0, ...call } of state.calls ?? []) this.writeCall({ ...call, index, text });
    if (this.approvals.waits) this.tellDoing();
    this.restoreReasoning(state.reasoning, state.reasoning_pieces, state.status === "running");
    this.facts.know({ usage: state.usage, duration_s: state.duration_s, cost_usd: state.cost_usd, model: state.answered_by || state.model });
    if (state.status && state.status !== "running" && state.status !== "pending") this.restoreEnding(state);
    this.tools.tellOutcomes(this.node);
    this.draw(); // with the frame that shows its tools
  }

  restoreApproval(approval, attempt) {
    this.ask(approval.asked, approval.decision ? approval : null, attempt);
  }

  restoreText(text) {
    for (const [attempt, piece] of piecesOf(text)) this.add(piece, attempt);
    if (text.stopped) this.open = null;
  }

  end({ status, error, usage, at }) {
    this.facts.know({ usage, duration_s: this.startedAt && at ? at - this.startedAt : null });
    this.finish(status, error);
    return this.loadSummary();
  }

  finish(status, error) {
    this.status = status;
    const last = this.texts.at(-1);
    if (last && status === "completed") {
      last.isWhole = true; // what is cut or stopped keeps no open marks
      this.dirty.add(last);
    }
    this.actions.hidden = false;
    this.activity.end();
    this.endThought();
    this.facts.show();
    this.inspect.href = `/?run=${encodeURIComponent(this.id)}`;
    this.note.textContent = this.ending.show(status, error, this.id);
    this.approvals.end();
    this.tools.interrupt();
  }

  restoreEnding(state) {
    this.finish(state.status, state.error);
    if (state.status === "failed") this.loadSummary();
  }

  /** What only the server can tell of a run that has ended: its cost, and what to do about a failure. */
  async loadSummary() {
    const state = await this.load?.("").catch(() => null);
    if (!state) return;
    this.ending.learn(state);
    this.facts.know({ cost_usd: state.cost_usd, duration_s: state.duration_s, model: state.answered_by });
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

/** The approvals by the call that each was asked about; those of a call that has not begun are under null. */
function approvalsByCall(approvals, tools) {
  const found = new Map([[null, []]]);
  for (const approval of approvals) {
    const call = tools.find((tool) => (tool.index ?? 0) === approval.index) ?? null;
    found.set(call, [...(found.get(call) ?? []), approval]);
  }
  return found;
}
