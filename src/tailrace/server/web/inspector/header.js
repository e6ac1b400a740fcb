// What a run is, at a glance: its question, how it ended, how long it took, what it cost.

import { button, link } from "../answer/dom.js";
import { INTERRUPTED } from "../answer/failure.js";
import { dollars, tokens } from "../answer/words.js";
import { titleOf } from "../conversation/question_files.js";
import { make } from "./dom.js";
import { seconds } from "./words.js";

const CLOCK = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export class RunHeader {
  /** `level` of its heading; `actions` are buttons and links for it. */
  constructor(level = "h1") {
    this.title = make(level, "run-title");
    this.facts = make("dl", "overview");
    this.error = make("p", "run-error");
    this.error.setAttribute("role", "alert");
    this.actions = make("div", "run-actions");
    this.time = make("span");
    this.node = make("header", "run-header", this.title, this.facts, this.error, this.actions);
  }

  draw(timeline) {
    this.title.textContent = titleOf(timeline.question) || timeline.id;
    this.title.title = titleOf(timeline.question);
    const status = make("span", "status", timeline.status);
    status.dataset.status = timeline.status;
    const attempts = timeline.items.filter(({ kind }) => kind === "attempt");
    const calls = attempts.filter(({ try_number: tried = 1 }) => tried === 1).length;
    this.tellTime(timeline.duration_s);
    this.facts.replaceChildren(
      ...fact("Status", status),
      ...fact("Model", timeline.model),
      ...fact("Time", this.time),
      ...fact("First token", seconds(timeline.first_token_s)),
      ...fact("Tokens", tokens(timeline.usage)),
      ...fact("Cost", dollars(timeline.cost_usd)),
      ...fact("Model calls", calls > 1 ? String(calls) : ""),
      ...fact("Tries", attempts.length > calls ? String(attempts.length) : ""),
      ...fact("Began", timeline.started_at ? CLOCK.format(timeline.started_at * 1000) : ""),
      ...fact("Run", timeline.id),
    );
    const why = timeline.error?.message ?? "";
    this.error.textContent = why === INTERRUPTED ? "" : why;
    this.error.hidden = !this.error.textContent;
  }

  tellTime(value) {
    this.time.textContent = seconds(value);
  }

  offer(label, action) {
    const made = typeof action === "string" ? link(label, action) : button(label, action);
    this.actions.append(made);
    return made;
  }

  /** A line below the facts, as for a fork. */
  note(...children) {
    this.actions.before(make("p", "run-note", ...children));
  }
}

function fact(name, value) {
  return value ? [make("div", "fact", make("dt", "", name), make("dd", "", value))] : [];
}
