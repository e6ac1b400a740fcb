// What people say to a run that is under way: greyed below its answer until the model is given it, then in its place.

import { button, element, make } from "./dom.js";

/** What was said, as it is shown; images are counted. */
export function inputText(input) {
  if (typeof input === "string") return input;
  const texts = input.filter(({ type }) => type === "text").map(({ text }) => text);
  const images = input.filter(({ type }) => type === "image").length;
  return [...texts, ...(images ? [images === 1 ? "1 image" : `${images} images`] : [])].join("\n");
}

export class NextMessages {
  /** `takeBack(id)` is called when the user wants a message back; null where nothing can be taken back. */
  constructor(takeBack = null) {
    this.takeBack = takeBack;
    this.node = make("div", "next-messages");
    this.lines = new Map(); // by the message's id
  }

  add({ steer_id: id, input }, words = inputText(input)) {
    if (this.lines.has(id)) return;
    const line = make("div", "question next");
    line.append(element("span", ["next"], "mark"), words);
    if (this.takeBack) {
      const back = button("Take back", () => this.takeBack(id), "quiet");
      back.title = "Esc";
      line.append(back);
    }
    this.lines.set(id, line);
    this.node.append(line);
  }

  remove(id) {
    this.lines.get(id)?.remove();
    this.lines.delete(id);
  }

  clear() {
    for (const id of [...this.lines.keys()]) this.remove(id);
  }

  /** The one that Esc takes back. */
  get newest() {
    return [...this.lines.keys()].at(-1) ?? "";
  }
}
