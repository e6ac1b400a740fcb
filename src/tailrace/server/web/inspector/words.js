// An item of a timeline in words: its name, one line that says what happened, and how it went.

import { count } from "../answer/words.js";
import { titleOf as withoutFiles } from "../conversation/question_files.js";

/** 0.31 s, 12.4 s, 3 min 05 s */
export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0 s";
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(2)} s`;
  if (value < 100) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const rest = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${rest(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${rest(Math.floor((whole % 3600) / 60))} min`;
}

/** Where in the run: +0.31, +3:20.4 */
export function moment(value) {
  if (value === null || value === undefined) return "";
  return `+${value < 59.995 ? value.toFixed(2) : clock(value, 1)}`;
}

/** A moment of the axis, whose moments are `step` seconds apart: 0.25 s, 12 s, 3:20.4. No two of them read the same. */
export function tickLabel(value, step) {
  const digits = [0, 1, 2, 3].find((count) => Math.abs(step * 10 ** count - Math.round(step * 10 ** count)) < 1e-6) ?? 3;
  if (value === 0) return "0 s";
  return value < 59.9995 ? `${value.toFixed(digits)} s` : clock(value, digits);
}

/** 3:20.4, 1:03:20.4 */
function clock(value, digits) {
  const whole = Number(value.toFixed(digits)); // rounded first: 59.96 s are a minute
  const rest = (number, count) => number.toFixed(count).padStart(count ? count + 3 : 2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const head = hours ? `${hours}:${rest(minutes, 0)}` : String(minutes);
  return `${head}:${rest(whole - hours * 3600 - minutes * 60, digits)}`;
}

const OUTCOMES = {
  running: "running",
  answered: "answered",
  called_tools: "called tools",
  failed: "failed",
  discarded: "withdrawn",
  interrupted: "interrupted",
  paused: "paused",
  stopped: "stopped",
};
const TOOL_STATES = {
  writing: "is being written",
  waiting: "waits",
  running: "runs",
  done: "",
  failed: "failed",
  not_executed: "not executed",
  broken_off: "broke off",
  returned: "returned to the client",
};
const DECISIONS = { once: "approved once", session: "approved for the session", always: "always approved", deny: "denied" };
const NO_ONE = { timeout: "denied: no answer came", "no surface": "denied: no person could be asked" };
const NAMES = {
  question: "Question",
  attempt: "Model",
  text: "Text",
  reasoning: "Thinking",
  stall: "Stall",
  notice: "Notice",
  failover: "Failover",
  tool_call: "Tool",
  approval: "Approval",
  takeover: "Takeover",
  compression: "Summary",
  fork: "Fork",
  step: "Step",
  state: "State",
  signal: "Signal",
  delivery: "Delivery",
  finish: "End",
};

export const nameOf = (item) => NAMES[item.kind] ?? item.kind;

const whom = (provider, model) => [provider, model].filter(Boolean).join("/");

/** Which call of the model an attempt or its text belongs to: "call 2", "call 2, try 3". */
export const callWords = ({ call = 1, try_number: tried = 1 }) => (tried > 1 ? `call ${call}, try ${tried}` : `call ${call}`);

/** One line, as short as a bar of the lanes is. */
export function titleOf(item) {
  switch (item.kind) {
    case "question":
      return [withoutFiles(item.text), ...(item.files ?? [])].filter(Boolean).join(" · ");
    case "attempt":
      return `${item.block_id ? `${item.block_id}, ` : ""}${callWords(item)}: ${whom(item.provider, item.model)}`;
    case "text":
      return item.text.trim();
    case "reasoning":
      return item.text?.trim() || `${count(item.chars ?? 0)} characters, hidden`;
    case "stall":
      return item.gave_up ? "gave up waiting" : "nothing came";
    case "notice":
      return item.text || item.about;
    case "failover":
      return `${whom(item.from_provider, item.from_model)} → ${whom(item.to_provider, item.to_model)}`;
    case "tool_call":
      return `${item.tool_name} ${item.preview ?? ""}`.trim();
    case "approval":
      return item.command;
    case "takeover":
      return "the process ended; the run went on";
    case "compression":
      return `the history is ${item.messages} ${item.messages === 1 ? "message" : "messages"} now`;
    case "fork":
      return `forked from ${item.run_id} after its event ${item.after}`;
    case "step":
      return (item.number ?? 1) > 1 ? `${item.block_id}, try ${item.number}` : item.block_id;
    case "state":
      return item.state;
    case "signal":
      return item.name;
    case "delivery":
      return `${item.key}: ${item.state}`;
    case "finish":
      return item.status;
    default:
      return "";
  }
}

/** How it went, in a few words. */
export function outcomeOf(item) {
  switch (item.kind) {
    case "attempt":
      return OUTCOMES[item.outcome ?? "running"];
    case "text":
      return item.withdrawn ? "withdrawn" : "";
    case "tool_call":
      return toolOutcome(item);
    case "approval":
      return item.decision ? (NO_ONE[item.by] ?? DECISIONS[item.decision]) : "waits";
    case "step":
      return item.state ?? "running";
    case "finish":
      return item.error?.message ?? "";
    default:
      return "";
  }
}

function toolOutcome(item) {
  if (item.exit_code) return `exit code ${item.exit_code}`;
  const changed = item.added || item.removed ? `+${item.added ?? 0} −${item.removed ?? 0}` : "";
  return TOOL_STATES[item.state ?? "waiting"] || changed;
}

/** "bad", "good", "open" or nothing: what colour tells beside the words. */
export function tone(item) {
  const state = item.outcome ?? item.state ?? item.decision ?? item.status;
  if (["failed", "discarded", "not_executed", "broken_off", "interrupted", "deny", "incomplete"].includes(state)) return "bad";
  if (item.kind === "stall" || item.kind === "takeover" || item.withdrawn || state === "retrying") return "bad";
  if (item.kind === "approval" && !item.decision) return "open";
  if (["running", "writing", "waiting"].includes(state) || (item.kind === "attempt" && !state)) return "open";
  return "";
}

export const lengthOf = (item) =>
  item.kind === "tool_call" && item.duration_s !== undefined
    ? item.duration_s
    : item.start !== undefined && item.end !== undefined && item.end > item.start
      ? item.end - item.start
      : null;

export const pretty = (value) =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 2);
