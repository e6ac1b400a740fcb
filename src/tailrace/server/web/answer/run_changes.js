// What a run's log changes for a viewer, event by event: the same as the server's `runs.view`, held to the same fixtures.

/** Calls of the answer under way whose arguments are still coming, in order. */
class WrittenCalls {
  constructor(calls = []) {
    this.calls = calls.map(({ index = 0, tool_name, arguments: text = "" }) => ({ index, tool_name, pieces: [text] }));
  }

  /** Whether this piece begins a call; null where the calls before it are not known. */
  add({ tool_name, index, text }, recorded) {
    const place = index - (this.calls[0]?.index ?? recorded);
    if (place < 0 || place > this.calls.length) return null;
    const begins = place === this.calls.length;
    if (begins) this.calls.push({ index, tool_name, pieces: [] });
    this.calls[place].pieces.push(text);
    return begins;
  }

  /** Whether these are the calls that were written, as far as they had come. */
  became(calls) {
    return this.calls.every(({ tool_name: name, pieces }, at) => {
      return calls[at]?.name === name && calls[at].arguments.startsWith(pieces.join(""));
    });
  }

  takeAll() {
    return this.calls.splice(0);
  }
}

export class RunChanges {
  constructor() {
    this.restore({});
  }

  /** The state of a run that was not watched from its beginning. */
  restore({ status = "running", messages = [], reasoning, tools = [], calls = [], approvals = [], steers = [] }) {
    const growing = messages.filter(({ stopped }) => !stopped).at(-1);
    this.pieces = growing ? piecesOf(growing) : []; // [attempt, text] of the message under way, until it is recorded
    this.hasText = false; // the answer under way has shown a text that has ended
    this.hasThought = Boolean(typeof reasoning === "string" ? reasoning : reasoning?.text);
    this.isThinking = false;
    this.written = new WrittenCalls(calls);
    this.callIndices = new Map(); // by the provider's id; the newest call of an id counts
    this.recorded = tools.reduce((next, { index = 0 }) => Math.max(next, index + 1), 0); // calls of the messages so far
    const running = tools.filter(({ ok }) => (ok ?? null) === null);
    this.running = new Map(running.map(({ index = 0, preview = null }) => [index, preview])); // with the first preview
    this.subRuns = new Map(tools.flatMap(({ index = 0, run_id: id }) => (id ? [[index, id]] : []))); // calls that are runs
    const waiting = approvals.filter(({ decision }) => status === "running" && !decision);
    this.questions = new Map(waiting.map(({ asked }) => [asked.approval_id, asked]));
    this.steers = new Map(steers.map((steer) => [steer.accepted.steer_id, steer]));
  }

  /** The changes of this event. One that is yet to be invented has none. */
  apply(event) {
    const { seq, attempt = 1, ...fact } = event;
    const made = (change, fields = {}) => ({ change, seq, attempt, ...fields });
    const read = READERS[fact.type];
    return read ? read(this, fact, made) : [];
  }

  endThought(made) {
    if (!this.isThinking) return [];
    this.isThinking = false;
    return [made("ThoughtGrew", { text: "", ends: true })];
  }

  closeText() {
    if (this.pieces.length) this.hasText = true;
    this.pieces = [];
  }

  wholeText(made, text, more = {}) {
    this.closeText();
    this.hasText = true;
    return made("TextGrew", { text, ends: true, ...more });
  }

  stop(made, final) {
    const ended = this.endThought(made);
    this.closeText();
    return [...ended, made("TextGrew", { text: "", ends: true, ...(final && { final }) })];
  }

  discard({ reason, block_id: blockId, retry_at }, made) {
    const why = { ...(reason && { reason }) };
    if (blockId) return [made("TextWithdrawn", { ...why, block_id: blockId })];
    const { attempt } = made();
    const ended = this.endThought(made);
    const kept = this.pieces.filter(([wrote]) => wrote !== attempt);
    const shown = kept.length < this.pieces.length;
    this.pieces = kept.map((piece) => [...piece]); // these may grow
    const calls = this.written.takeAll();
    const about = { ...(shown && { shown }), ...(shown && kept.length && { kept }), ...(calls.length && { calls }) };
    return [...ended, made("TextWithdrawn", { ...why, ...about, ...(retry_at && { retry_at }) })];
  }

  /** What a running call reports. One that is made anew after a crash is announced again: nothing changed. */
  progress({ index, tool_name, preview }, made) {
    if (!preview || preview === this.running.get(index)) return [];
    const about = { tool_name, index, ...(this.subRuns.has(index) && { run_id: this.subRuns.get(index) }) };
    return [made("UserNotice", { kind: "tool_progress", text: preview, extra: about })];
  }

  /** The calls that the model was writing will never be whole. */
  breakOff(made) {
    const calls = this.written.takeAll();
    return calls.length ? [made("TextWithdrawn", { discarded: false, calls })] : [];
  }

  write({ tool_name, index, text }, made) {
    const begins = this.written.add({ tool_name, index, text }, this.recorded);
    return begins === null ? [] : [...this.endThought(made), made("CallWritten", { index, tool_name, text, begins })];
  }

  /** The answer is whole. Its texts came in chunks, unless the log no longer has those. */
  record({ message, stop, stop_sequence }, made) {
    const joined = made("MessageJoined", { message, ...(stop && { stop }), ...(stop_sequence && { stop_sequence }) });
    if (message.role !== "assistant" || stop === "rejected") return [joined];
    const parts = message.parts ?? [];
    const textOf = (type) => parts.map((part) => (part.type === type ? part.text : "")).join("");
    const hasText = this.hasText || this.pieces.length > 0;
    const thoughts = hasText || this.hasThought ? "" : textOf("reasoning");
    const changes = thoughts ? [made("ThoughtGrew", { text: thoughts })] : [];
    this.isThinking ||= Boolean(thoughts);
    changes.push(...this.endThought(made));
    const text = textOf("text");
    if (text && !hasText) changes.push(this.wholeText(made, text));
    this.pieces = [];
    this.hasText = this.hasThought = false;
    const calls = parts.filter(({ type }) => type === "tool_call");
    if (!this.written.became(calls)) changes.push(...this.breakOff(made));
    const lengths = new Map(this.written.takeAll().map(({ index, pieces }) => [index, pieces.join("").length]));
    for (const call of calls) {
      const index = this.recorded++;
      this.callIndices.set(call.id, index);
      const rest = call.arguments.slice(lengths.get(index) ?? 0);
      const known = { index, tool_name: call.name, text: rest, begins: !lengths.has(index), call };
      changes.push(made("CallWritten", known));
    }
    return [...changes, joined];
  }

  /** What became of a person's message; the first fate counts. */
  steer({ steer_id, reason }, made, state) {
    const known = this.steers.get(steer_id);
    if (!known) return [];
    const fate = { accepted: known.accepted, state, ...(reason && { reason }) };
    const steer = known.state ? known : fate;
    this.steers.set(steer_id, steer);
    return [made("Steered", { steer })];
  }

  finish(finished, made) {
    this.questions.clear();
    const ended = this.pieces.length ? this.stop(made, true) : this.endThought(made);
    return [...ended, ...this.breakOff(made), made("Ended", { finished })];
  }

  indexOf(callId) {
    return this.callIndices.get(callId) ?? null;
  }
}

const READERS = {
  message_chunk(view, { text }, made) {
    const ended = view.endThought(made);
    const { attempt } = made();
    if (view.pieces.at(-1)?.[0] === attempt) view.pieces.at(-1)[1] += text;
    else view.pieces.push([attempt, text]);
    return [...ended, made("TextGrew", { text })];
  },
  commentary: (view, { text }, made) => [...view.endThought(made), view.wholeText(made, text, { commentary: true })],
  message_stop: (view, { final }, made) => view.stop(made, final),
  reasoning_chunk(view, { text }, made) {
    view.hasThought = view.isThinking = true;
    return [made("ThoughtGrew", { text })];
  },
  tool_arguments_chunk: (view, fact, made) => view.write(fact, made),
  tool_call_chunk: (view, { index = 0, tool_name, preview = null, args = null }, made) => {
    if (view.running.has(index)) return view.progress({ index, tool_name, preview }, made);
    view.running.set(index, preview);
    return [made("CallRuns", { index, tool_name, preview, args })];
  },
  tool_output_recorded: (view, output, made) => {
    return [made("CallEnded", { index: view.indexOf(output.call_id), tool_name: output.tool_name, ok: output.ok, output })];
  },
  tool_call_finished: (view, { index = 0, tool_name, ok, duration }, made) => {
    view.running.delete(index);
    return [made("CallEnded", { index, tool_name, ok, duration_s: duration })];
  },
  approval_asked(view, question, made) {
    view.questions.set(question.approval_id, question);
    return [made("Asked", { question, index: view.indexOf(question.call_id) })];
  },
  approval_answered(view, answer, made) {
    const question = view.questions.get(answer.approval_id) ?? null;
    view.questions.delete(answer.approval_id);
    return [made("Answered", { answer, question })];
  },
  steer_accepted(view, accepted, made) {
    if (!view.steers.has(accepted.steer_id)) view.steers.set(accepted.steer_id, { accepted });
    return [made("Steered", { steer: view.steers.get(accepted.steer_id) })];
  },
  steer_committed: (view, fact, made) => view.steer(fact, made, "committed"),
  steer_returned: (view, fact, made) => view.steer(fact, made, "returned"),
  attempt_started: (view, asked, made) => [...view.breakOff(made), made("AttemptBegan", { asked })],
  attempt_discarded: (view, fact, made) => view.discard(fact, made),
  message_recorded: (view, fact, made) => view.record(fact, made),
  run_finished: (view, finished, made) => view.finish(finished, made),
  snapshot(view, state, made) {
    view.restore(state);
    return [made("Restored", { state })];
  },
  llm_delta: (_, { block_id, delta }, made) => [made("TextGrew", { text: delta, block_id })],
  gateway_notice: (_, { kind, text, extra }, made) => [made("UserNotice", { kind, text, extra })],
  long_tool_hint: (_, { tool_name, duration }, made) => [made("ToolRunsLong", { tool_name, duration_s: duration })],
  run_started: (_, started, made) => [made("RunBegan", { started })],
  sub_run_started(view, { run_id, tool_name, index = 0 }, made) {
    view.subRuns.set(index, run_id);
    return [made("SubRunBegan", { run_id, tool_name, index })];
  },
  run_forked: (_, { run_id, after }, made) => [made("ForkBegan", { run_id, after })],
  history_compressed: (_, { messages }, made) => [made("HistoryReplaced", { messages })],
  usage_recorded: (_, { usage, provider, model }, made) => [made("Spent", { usage, provider, model })],
};

/** What each attempt wrote of a text: [attempt, text]. `pieces` are [attempt, length]; lengths count characters. */
export function piecesOf({ text = "", pieces }) {
  const characters = [...text];
  let start = 0;
  const written = (pieces ?? [[1, characters.length]]).map(([attempt, length]) => {
    start += length;
    return [attempt, characters.slice(start - length, start).join("")];
  });
  return written.filter(([, piece]) => piece);
}
