// One question on the screen, wherever it stands: the whole command, where it would run, how long it waits, and the
// buttons that answer it.

import { button, element, make } from "../answer/dom.js";
import { elapsed } from "../answer/words.js";
import { post } from "../net/api.js";
import { isUnreached, tellRefusal } from "../net/reached.js";
import { mayAnswer, serverNow } from "./server_clock.js";
import { coverage, requesterName } from "./words.js";

const SOON_S = 15;
let count = 0;

export class ApprovalCard {
  /** `runId()`: the run that asks. `closed()` is called once the server has taken an answer of this card. */
  constructor(asked, runId, closed = () => {}) {
    this.asked = asked;
    this.runId = runId;
    this.closed = closed;
    this.pressed = ""; // the decision that was sent from here
    const title = element("h2", [element("strong", [asked.tool_name]), ` asks for approval${asked.reason ? `: ${asked.reason}` : ""}`]);
    title.id = `approval-${++count}`;
    this.countdown = make("span", "countdown");
    this.countdown.setAttribute("role", "timer");
    const command = element("pre", [asked.command]);
    command.tabIndex = 0;
    command.setAttribute("role", "group"); // no landmark: the inbox may have many
    command.setAttribute("aria-label", "Command");
    const where = [asked.directory && `in ${asked.directory}`, asked.requester && `for ${requesterName(asked)}`];
    this.refused = make("p", "refused");
    this.refused.setAttribute("role", "alert");
    this.choices = make("div", "choices");
    this.node = element(
      "section",
      [
        element("div", [title, this.countdown], "approval-head"),
        command,
        element("p", [where.filter(Boolean).join(", ")], "approval-scope"),
        this.choices,
        this.refused,
      ],
      "approval-card",
    );
    this.node.tabIndex = -1;
    this.node.setAttribute("aria-labelledby", title.id);
    this.offer();
    this.tick();
  }

  get leftS() {
    const { asked_at: askedAt, expires_at: expiresAt } = this.asked;
    if (!expiresAt) return null;
    return Math.max(0, Math.ceil(Math.min(expiresAt - serverNow(), expiresAt - askedAt))); // the clocks differ by a moment
  }

  tick() {
    const left = this.leftS;
    this.countdown.textContent = left === null ? "" : elapsed(left);
    this.countdown.classList.toggle("soon", left !== null && left <= SOON_S);
    if (!mayAnswer(this.asked) && !this.foreign) this.offer();
  }

  /** The buttons; in their place, whose question it is, where another key has asked. */
  offer() {
    this.foreign = !mayAnswer(this.asked);
    if (this.foreign) {
      this.choices.replaceChildren(element("p", [`Only ${requesterName(this.asked) || "the person who started it"} can answer this.`]));
      return;
    }
    const covers = coverage(this.asked);
    const choice = (label, decision, name = "") => button(label, () => this.decide(decision), name);
    const explained = (label, words) => element("p", [element("strong", [label]), `: ${words}`]);
    this.choices.replaceChildren(
      choice("Approve once", "once", "primary"),
      choice("Approve for session", "session"),
      choice("Always", "always"),
      choice("Deny", "deny", "danger"),
      button("Deny and say why", () => this.askWhy()),
      element("div", [explained("For session", covers.session), explained("Always", covers.always)], "coverage"),
    );
  }

  askWhy() {
    const reason = make("input");
    reason.type = "text";
    reason.maxLength = 2000;
    reason.autocomplete = "off";
    const back = () => {
      this.offer();
      this.choices.lastElementChild.previousElementSibling.focus();
    };
    const deny = button("Deny with this reason", () => this.decide("deny", reason.value.trim()), "danger");
    const form = element("div", [element("label", ["Reason, for the model", reason]), deny, button("Back", back)], "why");
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === reason && !event.isComposing) deny.click();
      else if (event.key === "Escape") {
        event.preventDefault(); // it stops the run elsewhere
        event.stopPropagation();
        back();
      }
    });
    this.choices.replaceChildren(form);
    reason.focus();
  }

  /** Once is enough: the card goes when the log says that it was answered. */
  async decide(decision, reason = "") {
    const controls = this.choices.querySelectorAll("button, input");
    for (const control of controls) control.disabled = true;
    this.refused.textContent = "";
    this.pressed = decision;
    const body = { approval_id: this.asked.approval_id, decision, ...(reason && { reason }) };
    try {
      await post(`/runs/${encodeURIComponent(this.runId())}/approval`, body);
      this.closed();
    } catch (error) {
      if (isUnreached(error)) this.pressed = "";
      tellRefusal(this.refused, error, "The server cannot be reached. Nothing was decided.");
      for (const control of controls) control.disabled = false;
    }
  }
}
