// What the model thought, folded away. It is asked for only by who wants to see it.

import { element, make } from "./dom.js";
import { GrowingMarkdown } from "./markdown/growing_markdown.js";
import { seconds } from "./words.js";

const KEPT = "tailrace.reasoning";

export const wantsReasoning = () => localStorage.getItem(KEPT) === "true";
export const wantReasoning = (wanted) => localStorage.setItem(KEPT, String(wanted));

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

  /** `known`: how long it took was seen. */
  end(known = true) {
    if (this.ended) return;
    this.ended = true;
    this.summary.textContent = known ? `Thought for ${seconds(this.now() - this.began)}` : "Thought";
  }

  draw() {
    if (!this.stale || !this.node.open) return;
    this.stale = false;
    this.markdown.draw();
  }
}
