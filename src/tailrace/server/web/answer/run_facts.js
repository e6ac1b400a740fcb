// The line under an answer: which model, how many tokens, how long, what it cost, and the way to the run itself.

import { element, make } from "./dom.js";
import { dollars, seconds, tokens } from "./words.js";

export class RunFacts {
  constructor() {
    this.node = make("p", "run-facts");
    this.known = {};
  }

  /** Takes what is known: `id`, `model`, `usage`, `duration_s`, `cost_usd`; what is not stays as it was. */
  know(facts) {
    for (const [name, value] of Object.entries(facts)) if (![undefined, null, ""].includes(value)) this.known[name] = value;
    if (this.shown) this.show();
  }

  show() {
    this.shown = true;
    const { id, model, usage, duration_s: duration, cost_usd: cost } = this.known;
    const words = [
      model,
      tokens(usage),
      duration && seconds(duration),
      cost !== undefined && dollars(cost),
    ];
    this.node.replaceChildren();
    for (const word of words.filter(Boolean)) this.node.append(element("span", [word]));
    if (!id) return;
    const inspect = element("a", ["Inspect"]);
    inspect.setAttribute("href", `/?run=${encodeURIComponent(id)}`);
    this.node.append(inspect);
  }
}
