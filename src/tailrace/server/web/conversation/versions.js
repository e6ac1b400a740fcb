// Which runs of a conversation are shown, where a turn has several versions: one of each, from the first turn on.

import { iconButton } from "../icons.js";
import { make } from "../answer/dom.js";

/** The versions of each turn. `runs` maps ids, in the order of time, to what has the id of its `previous` run: "" for none,
 * null for the one before it. */
export class Versions {
  constructor(runs) {
    this.previous = new Map();
    this.following = new Map(); // id → the runs that follow it, oldest first
    let before = "";
    for (const [id, { previous }] of runs) {
      const parent = previous ?? before;
      this.previous.set(id, parent);
      this.following.set(parent, [...(this.following.get(parent) ?? []), id]);
      before = id;
    }
  }

  of(id) {
    return this.following.get(this.previous.get(id)) ?? [id];
  }

  /** The runs that lead to this one, and itself. */
  path(id) {
    const path = new Set();
    for (let at = id; at && !path.has(at); at = this.previous.get(at)) path.add(at);
    return path;
  }

  /** The newest run that follows from this one. */
  latest(id) {
    const next = this.following.get(id)?.at(-1);
    return next ? this.latest(next) : id;
  }
}

/** "‹ 2 of 3 ›" */
export class VersionSwitch {
  constructor() {
    this.node = make("span", "versions");
    this.count = make("span");
    this.back = iconButton("chevron-left", "Previous version", () => this.go(-1));
    this.next = iconButton("chevron-right", "Next version", () => this.go(1));
    this.node.append(this.back, this.count, this.next);
    this.node.hidden = true;
  }

  /** `go(step)` shows the version before or after this one. */
  show(number, of, go) {
    this.go = go;
    this.node.hidden = of < 2;
    this.count.textContent = `${number} of ${of}`;
    this.back.disabled = number <= 1;
    this.next.disabled = number >= of;
  }

  focus(step) {
    const [wanted, other] = step < 0 ? [this.back, this.next] : [this.next, this.back];
    (wanted.disabled ? other : wanted).focus({ preventScroll: true });
  }
}
