// What each slash command does on the page. The server's table says which there are.

import { decideWaiting } from "../approvals/waiting.js";
import { read } from "../net/api.js";
import { money } from "../operations/words.js";

const SCOPES = { "": "once", once: "once", session: "session", always: "always" };
const ON = "Everything is approved without asking in this conversation, until you turn it off or leave it.";

/** By name; the message box itself sends what /steer and /queue say. `conversation()` and `models()` are those that are
 * shown now, `model()` the name of the one that answers; `press(name)` presses a button of the last answer and returns
 * whether there was one. */
export function commandActions({ conversation, composer, models, model, sidebar, go, press, say }) {
  async function chooseModel(name) {
    if (!name) say(`The model is ${model()}.`);
    else say((await models().choose(name)) ? `The model is ${name} now.` : `There is no model ${name} here.`);
  }

  function decide(decision, reason = "") {
    if (!decision) say("/approve once, session or always.");
    else if (!decideWaiting(decision, reason)) say("Nothing waits for an approval.");
  }

  function switchYolo(word) {
    const on = { on: true, off: false }[word.toLowerCase()];
    if (on === undefined) return say("/yolo on approves everything in this conversation without asking; /yolo off asks again.");
    conversation().approveAll(on);
    return say(on ? ON : "Dangerous commands ask again, from the next one on.");
  }

  function tellStatus() {
    const { current, approvesAll } = conversation();
    const [next, waiting] = [current?.view.next.lines.size, current?.waiting.size];
    const counts = [next && `${next} to be read next`, waiting && `${waiting} waiting for approval`];
    const doing = current ? "Answering" : "Nothing is running";
    say([doing, ...counts, `approvals ${approvesAll ? "off" : "on"}`, model()].filter(Boolean).join(" · "));
  }

  async function tellCost() {
    if (!conversation().session) return say("Nothing was asked here yet.");
    const { usage, cost_usd: usd } = await read(conversation().path("?limit=1"));
    const [asked, answered] = [usage.input_tokens ?? 0, usage.output_tokens ?? 0].map((count) => count.toLocaleString("en"));
    return say(`${asked} tokens in, ${answered} out, ${usd === null ? "with no known price" : `${money(usd)} by list prices`}.`);
  }

  return {
    new: (question) => {
      go("/");
      if (question) composer.fill(question);
    },
    stop: () => composer.interrupt(),
    steer: () => say("/steer <message>"),
    queue: () => say("/queue <message>"),
    model: chooseModel,
    yolo: switchYolo,
    approve: (scope) => decide(SCOPES[scope.toLowerCase()]),
    deny: (reason) => decide("deny", reason),
    status: tellStatus,
    help: () => composer.fill("/"),
    resume: (id) => (id ? go(`/?session=${encodeURIComponent(id)}`) : sidebar.focusSearch()),
    retry: () => press("Regenerate") || say("There is no answer to ask for again."),
    cost: tellCost,
    copy: () => press("Copy") || say("There is no answer to copy."),
  };
}
