// A run as its viewers saw it at a moment: its events up to there, through the same view that shows it live.

import { RunView } from "../answer/runview.js";
import { fileChips, filesOf } from "../conversation/question_files.js";
import { make } from "./dom.js";
import { lastBefore } from "./placed.js";
import { StepsView } from "./steps_view.js";

export class Replay {
  constructor(label) {
    this.panel = make("div", "replay-view");
    this.node = make("section", "replay", make("h2", "", label), this.panel);
    this.node.setAttribute("aria-label", label);
    this.panel.tabIndex = 0; // it scrolls
    this.panel.setAttribute("role", "group");
    this.panel.setAttribute("aria-label", "The answer at this moment");
    this.events = [];
    this.moments = [];
    this.applied = 0;
    this.view = null;
    this.at = 0;
  }

  /** The events of the run so far, in one array that may grow, and its timeline: `timed` says whether moments are seconds
   *  or numbers of events. */
  load(events, timeline) {
    const isNew = this.events !== events;
    if (isNew || this.timeline !== timeline) this.moments = [];
    this.events = events;
    this.timeline = timeline;
    const times = timeline.times ?? [];
    for (let at = this.moments.length; at < events.length; at++) {
      this.moments.push(timeline.timed ? momentOf(times, events[at].seq) : events[at].seq);
    }
    if (isNew || !this.view) this.restart();
  }

  restart() {
    const { kind, question, items } = this.timeline;
    const { text, files } = filesOf(question);
    const beside = items.find((item) => item.kind === "question")?.files ?? []; // images and files that are no text
    this.view = kind === "sequence" ? new StepsView() : new RunView(text, { now: () => this.at });
    if (files.length || beside.length) this.showFiles([...files, ...beside]);
    this.applied = 0;
    this.panel.replaceChildren(this.view.node);
  }

  /** Below what was asked, or alone: an image may be all of it. */
  showFiles(files) {
    const asked = this.view.node.querySelector(".question") ?? make("div", "question");
    asked.append(fileChips(files));
    if (!asked.parentNode) this.view.node.prepend(asked);
  }

  /** Shows this moment. Going on costs what is new; going back begins anew. */
  seek(moment) {
    if (!this.view) return;
    this.at = (this.timeline.started_at ?? 0) + moment;
    const wanted = this.countUntil(moment);
    if (wanted < this.applied) this.restart();
    for (; this.applied < wanted; this.applied++) this.view.apply(this.events[this.applied]);
    this.view.draw();
    if (wanted < this.events.length) this.panel.scrollTop = this.panel.scrollHeight; // the newest is what was looked at
  }

  /** How many events had come by this moment. */
  countUntil(moment) {
    let low = 0;
    let high = this.moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[middle] <= moment + 1e-6) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The moment of the event before or after the one that is shown. */
  neighbour(step) {
    const at = this.moments[this.applied - 1] ?? 0;
    const places = step > 0 ? this.moments.slice(this.applied) : this.moments.slice(0, this.applied).reverse();
    return places.find((moment) => (moment - at) * step > 1e-6) ?? (step > 0 ? this.moments.at(-1) : 0) ?? 0;
  }
}

function momentOf(times, seq) {
  const [first, at] = times[lastBefore(times, seq)] ?? [0, 0];
  return first <= seq ? at : 0;
}
