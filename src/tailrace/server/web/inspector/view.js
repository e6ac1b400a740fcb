// One run, or two side by side: header, lanes, replay and list, kept in step. Knows no server: it is given timelines and
// events, by the page or by an exported file.

import { button } from "../answer/dom.js";
import { make } from "./dom.js";
import { RunHeader } from "./header.js";
import { Lanes } from "./lanes.js";
import { ItemList } from "./list.js";
import { isTimed, lastBefore, placed } from "./placed.js";
import { Replay } from "./replay.js";
import { hasLongPauses, momentsOf, Scale } from "./scale.js";
import { Scrubber } from "./scrubber.js";
import { moment as momentWords, seconds } from "./words.js";

const MAX_ZOOM = 64;
const CONTROLS = "button, input, select, textarea, summary, a, [tabindex]";

export class InspectorView {
  /** `count` runs. `fork(index, item)` begins a fork of a run after an item; without it none is offered. */
  constructor(root, count, { fork = null } = {}) {
    this.root = root;
    this.panes = Array.from({ length: count }, (_, index) => this.pane(index, count, fork));
    this.compress = null; // not chosen yet
    this.zoom = 1;
    this.follows = true; // the replay shows the newest moment
    this.scrubber = new Scrubber({
      seek: (x) => this.seek(x),
      words: (x) => this.wordsAt(x),
      seconds: () => (this.timed ? this.scale.length : this.scale.length / 20),
      step: (direction) => this.step(direction),
    });
    this.parting = make("p", "parting");
    this.parting.hidden = true;
    this.build(count);
    root.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.fit()).observe(root);
  }

  /** The window has another width, and room for more or fewer moments on the axis. */
  fit() {
    if (this.root.clientWidth === this.width) return;
    this.width = this.root.clientWidth;
    this.widen(this.zoom);
  }

  pane(index, count, fork) {
    const name = count > 1 ? `run ${"AB"[index]}` : "the run";
    return {
      header: new RunHeader(count > 1 ? "h2" : "h1"),
      lanes: new Lanes({ choose: (place) => this.choose(index, place), seek: (x) => this.seekByHand(x) }),
      list: new ItemList(`What happened in ${name}`, {
        choose: (place) => this.mark(index, place),
        fork: fork && ((item) => fork(index, item)),
      }),
      replay: new Replay(count > 1 ? `Run ${"AB"[index]} as it was seen` : "As it was seen"),
      timeline: null,
      shown: null, // the timeline with its places
      now: null,
    };
  }

  build(count) {
    const panes = this.panes;
    const columns = (name, ...nodes) => make("div", `${name} of-${count}`, ...nodes);
    this.root.replaceChildren(
      ...(count > 1 ? [make("h1", "", "Two runs side by side")] : []),
      columns("heads", ...panes.map(({ header }) => header.node)),
      this.parting,
      make("section", "timelines", this.toolbar(), ...panes.map(({ lanes }) => lanes.node), this.scrubber.node),
      count > 1
        ? make("div", "pair", columns("seen", ...panes.map(({ replay }) => replay.node)), columns("lists", ...panes.map((pane) => listOf(pane))))
        : make("div", "single", listOf(panes[0]), panes[0].replay.node),
    );
  }

  toolbar() {
    this.cutBox = make("input");
    this.cutBox.type = "checkbox";
    this.cutBox.addEventListener("change", () => {
      this.compress = this.cutBox.checked;
      this.draw();
    });
    this.cutLabel = make("label", "cut-label", this.cutBox, "Shorten idle time");
    const zoom = (label, name, action) => {
      const made = button(label, action, "zoom-button");
      made.setAttribute("aria-label", name);
      return made;
    };
    return make(
      "div",
      "toolbar",
      make("h2", "", "Timeline"),
      this.cutLabel,
      zoom("−", "Zoom out", () => this.widen(this.zoom / 2)),
      zoom("+", "Zoom in", () => this.widen(this.zoom * 2)),
      zoom("Fit", "Fit the whole run", () => this.widen(1)),
    );
  }

  // ── what is known ────────────────────────────────────────────────────────────────────────────────────────

  /** The newest timeline of a run; `now` is how long a live one has lasted. */
  show(index, timeline, now = null) {
    const pane = this.panes[index];
    pane.timeline = timeline;
    pane.now = now;
    pane.header.draw(timeline);
    pane.list.canFork = timeline.kind === "agent";
    this.draw();
    pane.list.draw(timeline.items.map((item, place) => ({ ...item, place })));
  }

  /** A live run has lasted so long: its lanes grow, although nothing new is known of it. */
  grow(index, now) {
    this.panes[index].now = now;
    this.panes[index].header.tellTime(now);
    this.draw();
  }

  /** The run's events so far. */
  load(index, events) {
    const pane = this.panes[index];
    pane.events = events;
    if (pane.shown) pane.replay.load(events, pane.shown);
    this.scrubber.show(this.follows ? 1 : this.scrubber.x);
  }

  draw() {
    const known = this.panes.filter(({ timeline }) => timeline);
    this.timed = known.every(({ timeline }) => isTimed(timeline));
    for (const pane of known) pane.shown = placed(pane.timeline, { timed: this.timed, now: pane.now });
    const moments = momentsOf(known.map(({ shown }) => shown));
    const pauses = this.timed && hasLongPauses(moments);
    this.cutLabel.hidden = !pauses;
    this.cutBox.checked = this.compress ?? pauses;
    const at = this.scale?.moment(this.scrubber.x);
    this.scale = new Scale(moments, pauses && this.cutBox.checked);
    const marks = partings(known.map(({ shown }) => shown));
    for (const pane of known) {
      pane.lanes.draw(pane.shown, this.scale, marks.get(pane.shown.id));
      if (pane.events) pane.replay.load(pane.events, pane.shown);
    }
    if (at !== undefined) this.scrubber.show(this.follows ? 1 : this.scale.x(at));
    this.tellParting(known);
  }

  tellParting(known) {
    if (known.length < 2) return;
    const words = partingWords(...known.map(({ timeline }) => timeline));
    this.parting.textContent = words;
    this.parting.hidden = !words;
  }

  // ── what people do ───────────────────────────────────────────────────────────────────────────────────────

  mark(index, place) {
    this.panes[index].lanes.mark(place);
    this.panes[index].list.mark(place);
  }

  choose(index, place) {
    this.panes[index].lanes.mark(place);
    this.panes[index].list.mark(place, { show: true });
    this.seekByHand(this.scale.x(this.panes[index].shown.items[place].to));
  }

  widen(zoom) {
    this.zoom = Math.min(MAX_ZOOM, Math.max(1, zoom));
    for (const pane of this.panes) {
      pane.lanes.widen(this.zoom);
      if (pane.shown) pane.lanes.drawAxis(pane.shown, this.scale);
    }
  }

  seek(x) {
    this.follows = x >= 1;
    const at = this.scale.moment(x);
    for (const { lanes, replay } of this.panes) {
      lanes.play(x);
      replay.seek(at);
    }
  }

  seekByHand(x) {
    this.scrubber.pause();
    this.scrubber.show(x);
  }

  step(direction) {
    const moments = this.panes.map(({ replay }) => replay.neighbour(direction));
    this.scrubber.show(this.scale.x(direction > 0 ? Math.min(...moments) : Math.max(...moments)));
  }

  wordsAt(x) {
    if (!this.scale) return "";
    const at = this.scale.moment(x);
    if (!this.timed) return `event ${Math.round(at)} of ${Math.round(this.scale.end)}`;
    return `${momentWords(at)} of ${seconds(this.scale.end)}`;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("dialog")) return;
    if (event.target.closest?.(CONTROLS) && event.target !== this.root && event.key === " ") return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName ?? "") && event.target.type !== "range") return;
    const action = {
      " ": () => this.scrubber.flip(),
      ",": () => this.step(-1),
      ".": () => this.step(1),
      "+": () => this.widen(this.zoom * 2),
      "-": () => this.widen(this.zoom / 2),
      0: () => this.widen(1),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

function listOf({ list }) {
  return make("section", "happened", make("h2", "", "What happened"), list.node);
}

/** Where two runs part, by their ids: a fork and the run that it came from. */
function partings(timelines) {
  const marks = new Map(timelines.map(({ id }) => [id, []]));
  for (const fork of timelines) {
    const origin = timelines.find(({ id }) => id === fork.forked_from?.run_id);
    if (!origin) continue;
    const { seq, after, run_id: id } = fork.forked_from;
    marks.get(id).push({ at: placeOf(origin, after), label: "forked here" });
    marks.get(fork.id).push({ at: placeOf(fork, seq), label: "its own part" });
  }
  return marks;
}

function placeOf({ times = [], timed }, seq) {
  return timed ? (times[lastBefore(times, seq)]?.[1] ?? 0) : seq;
}

const WORDS = 60;
const LETTER = /[\p{L}\p{N}]/u;
const LETTERS_AT_END = /[\p{L}\p{N}]*$/u; // a word that is begun in both is said in neither

function partingWords(one, other) {
  const [first, second] = [one.output ?? "", other.output ?? ""];
  if (!first || !second) return "";
  if (first === second) return "Both answers are the same.";
  let at = 0;
  while (at < first.length && first[at] === second[at]) at++;
  if ([first[at], second[at]].some((next) => LETTER.test(next ?? ""))) at = first.slice(0, at).search(LETTERS_AT_END);
  const common = first.slice(0, at).trim();
  if (!common) return "The answers differ from the first word on.";
  return `The answers part after “${common.length > WORDS ? `… ${common.slice(-WORDS)}` : common}”.`;
}
