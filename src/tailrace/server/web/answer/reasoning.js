// What the model thought, where it did, folded away: how long it took, and the text for who opens it.

import { element, make } from "./dom.js";
import { GrowingMarkdown } from "./markdown/growing_markdown.js";
import { elapsed, seconds } from "./words.js";

export class Thought {
  constructor(now) {
    this.now = now;
    this.began = now();
    this.summary = element("summary", ["Thinking …"]);
    this.text = make("div", "thought-text");
    this.markdown = new GrowingMarkdown(this.text);
    this.node = element("details", [this.summary, this.text], "thought");
    this.node.addEventListener("toggle", () => this.draw());
  }

  add(piece) {
    this.markdown.add(piece);
    this.stale = true;
  }

  tick() {
    if (!this.ended) this.summary.textContent = `Thinking for ${elapsed(this.now() - this.began)}`;
  }

  /** `known`: how long it took was seen. */
  end(known = true) {
    if (this.ended) return;
    this.ended = true;
    this.stale = true;
    this.tell(known ? this.now() - this.began : 0);
  }

  tell(tookS) {
    this.summary.textContent = tookS < 0.1 ? "Thought" : `Thought for ${seconds(tookS)}`;
  }

  draw() {
    if (!this.stale || !this.node.open) return;
    this.stale = false;
    this.markdown.draw({ isWhole: this.ended });
  }
}
