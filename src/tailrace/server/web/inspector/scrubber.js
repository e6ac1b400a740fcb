// The controls of a replay: where it is, whether it plays and how fast. `x` is a place on the axis, 0 to 1.

import { button } from "../answer/dom.js";
import { make } from "./dom.js";

const STEPS = 1000;
const SPEEDS = [1, 4, 16];

export class Scrubber {
  /** `seek(x)` shows a place, `words(x)` says it; `seconds()` is how long all of it takes at speed 1; `step(direction)`
   *  goes to the next or the previous event. */
  constructor({ seek, words, seconds, step }) {
    Object.assign(this, { seekTo: seek, words, seconds });
    this.x = 1;
    this.speed = 1;
    this.playing = false;
    this.toggle = button("Play", () => this.flip(), "play");
    this.range = make("input", "scrub");
    Object.assign(this.range, { type: "range", min: "0", max: String(STEPS), step: "1", value: String(STEPS) });
    this.range.setAttribute("aria-label", "Moment of the run");
    this.range.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.range.value) / STEPS);
    });
    this.label = make("output", "scrub-time");
    this.speeds = make("select", "speed", ...SPEEDS.map((speed) => make("option", "", `${speed}×`)));
    this.speeds.setAttribute("aria-label", "Speed");
    this.speeds.addEventListener("change", () => {
      this.speed = SPEEDS[this.speeds.selectedIndex];
    });
    const stepper = (label, name, direction) => {
      const made = button(label, () => (this.pause(), step(direction)), "step-button");
      made.setAttribute("aria-label", name);
      return made;
    };
    this.node = make(
      "div",
      "scrubber",
      this.toggle,
      stepper("‹", "Previous event", -1),
      stepper("›", "Next event", 1),
      this.range,
      this.label,
      this.speeds,
    );
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", "Replay");
  }

  show(x) {
    this.x = Math.min(1, Math.max(0, x));
    this.range.value = String(Math.round(this.x * STEPS));
    const words = this.words(this.x);
    this.label.textContent = words;
    this.range.setAttribute("aria-valuetext", words);
    this.seekTo(this.x);
  }

  flip() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    this.playing = true;
    this.toggle.textContent = "Pause";
    if (this.x >= 1) this.show(0);
    let last = null;
    const frame = (now) => {
      if (!this.playing) return;
      const passed = last === null ? 0 : Math.min(1, (now - last) / 1000); // a tab in the background has no frames
      last = now;
      this.show(this.x + (passed * this.speed) / Math.max(0.001, this.seconds()));
      if (this.x >= 1) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    this.playing = false;
    this.toggle.textContent = "Play";
  }
}
