// What waits for a decision in this conversation, pinned above the message box so that it is always in view.

import { make } from "../answer/dom.js";
import { post } from "../net/api.js";

const place = () => document.getElementById("waiting");
const pinned = new Map(); // approval id → {card, line}: `line` is its place in the conversation
let ticking = null;
let live = null;

/** Shows a question until `unpin`, or until its conversation is no longer the one that is shown. */
export function pin(card, line) {
  if (!place() || pinned.has(card.asked.approval_id)) return;
  const typing = isTyping();
  pinned.set(card.asked.approval_id, { card, line });
  card.closed = () => returnFocus(card.node);
  place().append(card.node);
  announce(`Approval needed: ${card.asked.tool_name} wants to run ${card.asked.command}`);
  if (!typing) requestAnimationFrame(() => card.node.isConnected && !isTyping() && card.node.focus({ preventScroll: true }));
  ticking ??= setInterval(tick, 1000);
}

export function unpin(id, words = "") {
  const found = pinned.get(id);
  if (!found) return;
  pinned.delete(id);
  if (words) announce(words);
  const focused = found.card.node.contains(document.activeElement);
  found.card.node.remove();
  if (focused) returnFocus(null);
  if (pinned.size === 0) {
    clearInterval(ticking);
    ticking = null;
  }
}

/** Resolves also where another person has answered. */
export async function approveOnce(run, id) {
  await post(`/runs/${encodeURIComponent(run)}/approval`, { approval_id: id, decision: "once" }).catch((error) => {
    if (error.status !== 409) throw error;
  });
}

/** Answers the question that came first; false where there is none. */
export function decideWaiting(decision, reason = "") {
  const [first] = pinned.values();
  first?.card.decide(decision, reason);
  return Boolean(first);
}

function tick() {
  for (const [id, { card, line }] of [...pinned]) {
    if (!line.isConnected) unpin(id); // another conversation was opened
    else card.tick();
  }
}

/** To the next question, or back to the message box. */
function returnFocus(answered) {
  const next = [...pinned.values()].map(({ card }) => card.node).find((node) => node !== answered);
  (next ?? document.getElementById("message"))?.focus({ preventScroll: true });
}

function isTyping() {
  const at = document.activeElement;
  if (document.querySelector("dialog[open]")) return true;
  if (!at || at === document.body) return false;
  if (at.id === "message") return at.value !== "";
  return at.matches("input, textarea, select") || place().contains(at);
}

/** For screen readers. */
function announce(words) {
  if (!live) {
    live = make("p", "unseen");
    live.setAttribute("aria-live", "assertive");
    place().before(live);
  }
  live.textContent = words;
}
