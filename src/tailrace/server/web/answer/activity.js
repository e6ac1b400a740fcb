// What a run does while there is nothing new to read: "Thinking 8 s", "try 2 in 4 s", which tool runs. One quiet line
// under the answer, told by seconds and not read out each time that they change.

import { make } from "./dom.js";
import { elapsed } from "./words.js";

const TICK_MS = 1000;
const QUIET_S = 5; // a text that does not grow for so long is told

export class Activity {
  /** `now()`: seconds. `ticking`: the line changes by itself; else when it is told to. */
  constructor(now, ticking) {
    this.now = now;
    this.node = make("p", "activity");
    this.node.setAttribute("aria-live", "off");
    this.doing = "";
    this.since = now();
    this.tries = 0;
    this.model = "";
    this.again = ""; // the next try, and why the last one failed
    this.thought = null; // that goes on, and says so itself
    this.said = false; // part of the answer has been shown
    if (ticking) this.timer = setInterval(() => this.tick(), TICK_MS);
    this.set("Thinking");
  }

  set(doing, since = this.now()) {
    if (doing !== this.doing) this.since = since;
    this.doing = doing;
    this.again = "";
    this.draw();
  }

  /** The run began at this time of the server's clock: a page that comes later counts from there. */
  began(at) {
    if (at) this.since = Math.min(this.since, Math.max(at, this.now() - 86_400));
    this.draw();
  }

  /** Another attempt begins: the first one of an answer is not worth a word. */
  attempt({ provider = "", model = "" }) {
    const named = [provider, model].filter(Boolean).join("/");
    const moved = this.model && named && named !== this.model ? ` at ${named}` : "";
    this.model = named || this.model;
    this.tries += 1;
    if (this.tries === 1) this.set("Thinking");
    else this.set(this.said ? `Continuing${moved}, try ${this.tries}` : `Thinking, try ${this.tries}${moved}`);
  }

  /** That attempt failed; `retryAt`: when its provider may be asked again, where it has said so. */
  failed(reason, retryAt) {
    this.again = reason && `${reason} · try ${this.tries + 1}`;
    this.retryAt = retryAt;
    this.draw();
  }

  /** A piece of the answer came. */
  text() {
    this.said = true;
    this.doing = this.again = "";
    this.since = this.now();
    if (this.node.textContent) this.draw();
  }

  /** The model's answer is whole: what follows is another one. */
  answered() {
    this.tries = 0;
    this.said = false;
    this.set("Thinking");
  }

  /** Nothing is done until a person decides. */
  rest() {
    this.doing = this.again = "";
    this.since = Infinity;
    this.draw();
  }

  end() {
    clearInterval(this.timer);
    this.ended = true;
    this.node.textContent = "";
  }

  tick() {
    this.thought?.tick();
    if (this.seen && !this.node.isConnected) clearInterval(this.timer); // the conversation is no longer shown
    this.seen = this.node.isConnected;
    this.draw();
  }

  draw() {
    if (this.ended) return;
    const silent = this.now() - this.since;
    const left = Math.ceil(this.retryAt - this.now());
    let words = "";
    if (this.again) words = `${this.again} ${left > 0 ? `in ${left} s` : "follows"}`;
    else if (this.doing) words = silent < 1 ? `${this.doing} …` : `${this.doing} ${elapsed(silent)}`;
    else if (silent >= QUIET_S) words = `No new text for ${elapsed(silent)}`;
    if (words !== this.node.textContent) this.node.textContent = words;
  }
}
