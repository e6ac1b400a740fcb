// The figures of an answer, for who asks for them: which model, how many tokens, how long, what it cost.

import { element, make } from "./dom.js";
import { dollars, seconds, tokens } from "./words.js";

export class RunFacts {
  constructor() {
    this.node = make("p", "run-facts");
    this.node.hidden = true;
    this.known = {};
  }

  /** Takes what is known: `model`, `usage`, `duration_s`, `cost_usd`; what is not stays as it was. */
  know(facts) {
    for (const [name, value] of Object.entries(facts)) if (![undefined, null, ""].includes(value)) this.known[name] = value;
    if (this.shown) this.show();
  }

  show() {
    this.shown = true;
    const { model, usage, duration_s: duration, cost_usd: cost } = this.known;
    const words = [model, tokens(usage), duration && seconds(duration), cost !== undefined && dollars(cost)];
    this.node.replaceChildren(...words.filter(Boolean).map((word) => element("span", [word])));
  }
}
