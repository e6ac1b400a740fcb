// A tool call as a card: one line that says what was called and what became of it, and behind it the arguments, the
// output and what the call changed. What is behind it is made when it is opened.

import { CodeBlock, languageOfFile } from "./code/code_block.js";
import { element, fill, link, make } from "./dom.js";
import { seconds } from "./words.js";

const EXIT = /\[(exit code \d+|ended by signal \d+|ended after \d+ s)[^\]\n]*\]$/;
const INTERRUPTED = /^(This call was interrupted|The user interrupted this call)/;
const NOT_EXECUTED = {
  denied: "denied",
  no_answer: "denied: no answer came",
  no_one_to_ask: "denied: no person could be asked",
  forbidden: "refused by the rules",
  failed: "not executed",
};
const WORDS = { writing: "is being written", pending: "waits", interrupted: "interrupted" };

export class ToolCard {
  /** `load()` resolves to what was recorded of this call's output, for a card whose output did not come with the events. */
  constructor(name, load) {
    this.name = name;
    this.load = load;
    this.state = "";
    this.args = null;
    this.written = []; // the arguments as the model writes them
    this.outcome = null; // { output, ok, not_executed }
    this.duration = 0;
    this.run = ""; // the id of the run that the call is, where an agent was called
    this.steps = []; // what that run did
    this.preview = make("span", "preview");
    this.result = make("span", "result");
    this.body = make("div", "tool-body");
    const summary = element("summary", [element("span", [name], "tool-name"), " ", this.preview, this.result]);
    this.node = element("details", [summary, this.body], "tool");
    this.node.addEventListener("toggle", () => this.toggled());
  }

  // ── what happens to it ───────────────────────────────────────────────────────────────────────────────────

  write(piece) {
    this.written.push(piece);
    this.become("writing");
  }

  /** The call is whole; it may have to wait for an approval. */
  recorded(args) {
    this.args = args;
    this.become("pending");
  }

  begin({ preview, args }) {
    this.preview.textContent = preview ?? "";
    this.args = args ?? this.args;
    this.become("running");
  }

  progress(line) {
    if (this.state === "running") this.result.textContent = line;
  }

  beginRun(id, steps, openRun) {
    Object.assign(this, { run: id, steps: [...this.steps, ...steps], openRun });
    this.stale = true;
    this.draw();
  }

  step(line) {
    this.steps.push(line);
    this.progress(line);
    if (!this.openRun) this.stale = true;
    this.draw();
  }

  end({ ok, duration = 0 }) {
    this.duration = duration;
    this.become(ok === false ? "failed" : "done");
  }

  /** What was recorded of the output, whenever it is known. */
  know(outcome) {
    this.outcome = outcome;
    if (!["writing", "pending", "running"].includes(this.state)) this.become(this.state);
  }

  interrupt() {
    if (["writing", "pending", "running"].includes(this.state)) this.become("interrupted");
  }

  // ── what is seen of it ───────────────────────────────────────────────────────────────────────────────────

  become(state) {
    this.state = state;
    this.stale = true;
    const refused = this.outcome?.not_executed;
    if (refused) this.state = "denied";
    else if (state === "failed" && INTERRUPTED.test(this.outcome?.output ?? "")) this.state = "interrupted";
    this.node.dataset.state = this.state;
    this.result.textContent = this.words();
  }

  words() {
    const { state, outcome, name } = this;
    if (state === "denied") return NOT_EXECUTED[outcome.not_executed.kind] ?? "not executed";
    const words = [];
    if (state === "done") {
      const change = changeOf(name, this.args, outcome);
      if (change) words.push(change.added || change.removed ? `+${change.added} −${change.removed}` : "unchanged");
    }
    if (WORDS[state]) words.push(WORDS[state]);
    if (state === "failed") words.push(EXIT.exec(lastLine(outcome?.output ?? ""))?.[1] ?? "failed");
    if (this.duration && state !== "running") words.push(seconds(this.duration));
    return words.join(" · ");
  }

  draw() {
    if (this.stale && this.node.open) this.show();
  }

  async toggled() {
    if (!this.node.open) return;
    this.show();
    if (this.outcome || this.loading || !this.load || !["done", "failed", "interrupted"].includes(this.state)) return;
    this.loading = true;
    this.show();
    const outcome = await this.load().catch(() => null);
    this.loading = false;
    if (outcome) this.know(outcome);
    this.show();
  }

  show() {
    this.stale = false;
    const parts = [...this.argumentParts(), ...this.runParts(), ...this.outputParts()];
    fill(this.body, parts.length ? parts : [element("p", ["No arguments."])]);
  }

  argumentParts() {
    const { args, name, outcome } = this;
    if (this.state === "writing") return [code("Arguments", "json", readable(this.written.join("")))];
    if (!args) return [];
    const change = changeOf(name, args, outcome);
    if (change?.lines.length) return [caption(args.path), code("Change", "diff", change.lines.join("\n"))];
    if (name === "write_file" && typeof args.content === "string") {
      return [caption(args.path), code("Content", languageOfFile(String(args.path)), args.content)];
    }
    const { command, ...rest } = args;
    if (name === "terminal" && typeof command === "string") {
      return [code("Command", "bash", command), ...(Object.keys(rest).length ? [code("Options", "json", pretty(rest))] : [])];
    }
    return Object.keys(args).length ? [code("Arguments", "json", pretty(args))] : [];
  }

  /** What the called agent does: its run, live; where there is no server to ask, what it called. */
  runParts() {
    if (!this.run) return [];
    if (!this.openRun) return this.steps.map((step) => element("p", [`▸ ${step}`], "soft"));
    const inspect = link("Inspect this run", `/?run=${encodeURIComponent(this.run)}`, "soft");
    this.shownRun ??= this.openRun(this.run);
    return [this.shownRun, element("p", [inspect])];
  }

  outputParts() {
    if (this.loading) return [element("p", ["Loading the output …"], "soft")];
    const { outcome } = this;
    if (!outcome || (this.shownRun && outcome.ok !== false)) return []; // the run's own answer says it
    const parts = [];
    if (outcome.not_executed) parts.push(element("p", [`Not executed: ${outcome.not_executed.reason}`]));
    if (outcome.not_executed) return parts; // its output is the same words for the model
    if (outcome.output) parts.push(code("Output", "", outcome.output));
    else parts.push(element("p", ["No output."], "soft"));
    for (const { name, media_type: type } of outcome.files ?? []) parts.push(element("p", [`File: ${name} (${type})`], "soft"));
    return parts;
  }
}

/** The lines that a call of `patch` or `write_file` changes, and how many come and go: as recorded, and of a patch that has
 * not run yet as it was asked for. Null where that is not known. */
function changeOf(name, args, outcome) {
  const { added = 0, removed = 0, diff = "" } = outcome?.change ?? {};
  if (outcome?.change) return { added, removed, lines: diff.replace(/\n $/, "").split("\n").filter((_, at) => diff || at) };
  if (name !== "patch" || typeof args?.old !== "string" || typeof args.new !== "string") return null;
  const gone = linesOf(args.old).map((line) => `-${line}`);
  const come = linesOf(args.new).map((line) => `+${line}`);
  return { added: come.length, removed: gone.length, lines: [...gone, ...come] };
}

const linesOf = (text) => (text ? text.replace(/\n$/, "").split("\n") : []);

function code(label, language, text) {
  const block = new CodeBlock();
  block.show(language, text);
  block.label.textContent = label;
  return block.node;
}

const caption = (path) => element("p", [String(path ?? "")], "path");
const pretty = (value) => JSON.stringify(value, null, 2);

function lastLine(text) {
  return text.slice(text.lastIndexOf("\n") + 1);
}

/** JSON as it is being written, with its line ends as line ends. */
function readable(text) {
  return text.replaceAll("\\n", "\n").replaceAll('\\"', '"').replaceAll("\\t", "\t");
}
