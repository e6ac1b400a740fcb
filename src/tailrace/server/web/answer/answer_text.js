// A text of an answer: what the model says before, between or after its tools.

import { make } from "./dom.js";
import { GrowingMarkdown } from "./markdown/growing_markdown.js";

/** One text of the answer. Its pieces are kept by attempt: one that is withdrawn takes its own with it. */
export class AnswerText {
  constructor() {
    this.node = make("div", "message");
    this.pieces = [];
    this.markdown = new GrowingMarkdown(this.node);
  }

  add(piece, attempt) {
    this.pieces.push([attempt, piece]);
    this.markdown.add(piece);
  }

  withdraw(attempt) {
    this.pieces = this.pieces.filter(([by]) => by !== attempt);
    this.markdown.clear();
    this.markdown.add(this.source());
  }

  /** It is not the last one any more: off the screen it need not be laid out. */
  settle() {
    this.isWhole = true; // nothing follows: marks that are open at its end are text
    this.node.className = "message ended";
  }

  draw() {
    this.markdown.draw({ isWhole: this.isWhole });
  }

  source() {
    return this.pieces.map(([, piece]) => piece).join("");
  }
}
