// How a run ended when it did not end well: what happened, what to do next, a way to ask again, and the attempts behind
// it. Only a failure is an alert; an answer that was stopped, cut or set aside is told quietly.

import { ask, newId, post } from "../net/api.js";
import { tellRefusal } from "../net/reached.js";
import { events } from "../net/sse.js";
import { button, element, make } from "./dom.js";

const QUIET = {
  incomplete: "The answer is incomplete",
  stopped: "Stopped",
  parked: "Set aside after its process died several times. It goes on once an operator releases it",
};

export const INTERRUPTED = "interrupted"; // the message of a run that a person has stopped: "Stopped" says as much

export class RunEnding {
  constructor() {
    this.node = make("div", "ending");
    this.tries = 0; // of the model call under way
    this.answered = false; // that call has its answer: the next attempt is another call's
    this.facts = null; // of a failure: its status and its tries
    this.advice = make("p", "advice");
  }

  /** An attempt begins. */
  attempt({ previous_failure: failure = "" }) {
    this.tries = this.answered && !failure ? 1 : this.tries + 1;
    this.answered = false;
  }

  /** Returns what is told of it quietly. */
  show(status, error, id) {
    this.node.replaceChildren();
    this.node.className = "ending";
    if (status === "failed") this.fail(error, id);
    if (!QUIET[status]) return "";
    const why = error?.message === INTERRUPTED ? "" : error?.message;
    return why ? `${QUIET[status]}: ${why}` : QUIET[status];
  }

  fail(error, id) {
    this.node.className = "ending failure";
    this.status = error?.status ?? 0;
    this.facts = make("span");
    this.tellFacts();
    const words = error?.message ? `: ${error.message}` : "";
    const said = element("div", [element("p", [element("strong", ["The run failed"]), this.facts, words]), this.advice]);
    said.setAttribute("role", "alert");
    const retry = button("Retry", () => this.retry(id, retry), "primary");
    this.refused = make("p", "advice");
    this.node.append(said, element("div", [retry], "choices"), attemptList(id), this.refused);
  }

  tellFacts() {
    const facts = [this.status && `HTTP ${this.status}`, this.tries > 1 && `${this.tries} tries`].filter(Boolean);
    this.facts.textContent = facts.length ? ` (${facts.join(", ")})` : "";
  }

  /** What the server knows of a failure: how often it was tried, and what to do next. */
  learn({ tries = 0, advice: words = "" }) {
    if (!this.facts) return;
    this.tries = Math.max(this.tries, tries);
    this.tellFacts();
    this.advice.textContent = words && `${words}.`; // it may begin with a provider's name
  }

  /** The same question again, in its place. */
  async retry(id, pressed) {
    pressed.disabled = true;
    this.refused.textContent = "";
    try {
      await post(`/runs/${encodeURIComponent(id)}/retry`, { idempotency_key: newId() });
      pressed.textContent = "Asked again";
    } catch (problem) {
      pressed.disabled = false;
      tellRefusal(this.refused, problem, "The server cannot be reached. Try again.");
    }
  }
}

/** The attempts at the call that failed, read from the log when a person opens them. */
function attemptList(id) {
  const list = make("ol");
  const details = element("details", [element("summary", ["Details"]), list]);
  details.addEventListener("toggle", async () => {
    if (!details.open || list.childElementCount) return;
    try {
      const response = await ask(`/runs/${encodeURIComponent(id)}/stream`);
      list.replaceChildren(...(await attempts(response.body)).map((words) => element("li", [words])));
    } catch {
      list.replaceChildren(element("li", ["The attempts cannot be read now."]));
    }
  });
  return details;
}

async function attempts(body) {
  let found = [];
  let answered = false;
  for await (const { event, data } of events(body)) {
    const entry = JSON.parse(data);
    answered ||= event === "message_recorded" && entry.message.role === "assistant";
    if (event === "attempt_started") {
      if (answered && !entry.previous_failure) found = [];
      answered = false;
      if (entry.previous_failure && found.length) found.at(-1).why = entry.previous_failure;
      found.push({ who: [entry.provider, entry.model].filter(Boolean).join("/"), why: "" });
    } else if (event === "attempt_discarded" && found.length) found.at(-1).why ||= entry.reason ?? "";
    else if (event === "run_finished" && found.length) found.at(-1).why ||= entry.error?.message ?? "";
  }
  return found.map(({ who, why }) => (why ? `${who}: ${why}` : who));
}
