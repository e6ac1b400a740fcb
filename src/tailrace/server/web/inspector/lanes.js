// The lanes of one run over a time axis. They show for the eye what the list of items says in words, so that they are
// hidden from assistive technology.

import { make, svg } from "./dom.js";
import { lanesOf, pace } from "./placed.js";
import { nameOf, outcomeOf, seconds, tickLabel, titleOf, tone } from "./words.js";

const TICK_PX = 60; // what a label of the axis takes
const LATE = 0.75; // a label on the right of what stands there may not fit
const MOST_BUCKETS = 60;
const PIECES_PER_BUCKET = 4; // fewer would show how they were cut, not how fast they came

export class Lanes {
  /** `choose(place)` is called when an item is clicked, `seek(x)` when the axis is. */
  constructor({ choose, seek }) {
    this.choose = choose;
    this.axis = make("div", "axis");
    this.axis.addEventListener("pointerdown", (event) => {
      const move = ({ clientX }) => {
        const { left, width } = this.axis.getBoundingClientRect();
        seek((clientX - left) / width);
      };
      this.axis.setPointerCapture(event.pointerId);
      this.axis.addEventListener("pointermove", move);
      this.axis.addEventListener("pointerup", () => this.axis.removeEventListener("pointermove", move), { once: true });
      move(event);
    });
    this.head = make("div", "playhead");
    this.marks = make("div", "marks");
    this.body = make("div", "lane-body");
    this.plot = make("div", "plot", this.axis, this.body, this.marks, this.head);
    this.names = make("div", "lane-names");
    this.scroller = make("div", "lane-scroll", this.plot);
    this.node = make("div", "lanes", this.names, this.scroller);
    this.node.setAttribute("aria-hidden", "true");
    this.body.addEventListener("click", ({ target }) => {
      const bar = target.closest(".bar");
      if (bar) this.choose(Number(bar.dataset.place));
    });
    this.bars = new Map();
    this.chosen = null;
    this.zoom = 1;
  }

  /** `marks` are moments with a label: where a run was forked. */
  draw(timeline, scale, marks = []) {
    const lanes = lanesOf(timeline.items);
    this.bars = new Map();
    this.names.replaceChildren(make("div", "axis-name", timeline.timed ? "" : "event"));
    this.body.replaceChildren();
    for (const lane of lanes) {
      const drawn = make("div", `lane lane-${lane.id}`);
      for (const row of lane.rows) drawn.append(make("div", "lane-row", ...row.map((item) => this.bar(item, timeline, scale))));
      const name = make("div", "lane-name", lane.label);
      name.style.setProperty("--rows", lane.rows.length);
      this.names.append(name);
      this.body.append(drawn);
    }
    this.drawAxis(timeline, scale);
    this.marks.replaceChildren(
      ...scale.gaps.map((gap) => cutMark(gap, scale)),
      ...marks.map(({ at, label }) => {
        const mark = make("div", "mark", make("span", "", label));
        mark.style.setProperty("--x", scale.x(at));
        mark.classList.toggle("late", scale.x(at) > LATE);
        return mark;
      }),
    );
    this.mark(this.chosen);
  }

  drawAxis(timeline, scale) {
    const width = this.plot.clientWidth || 700;
    const ticks = scale.ticks(Math.max(3, Math.floor(width / 90))).filter(({ x }) => (1 - x) * width > TICK_PX);
    this.axis.replaceChildren(
      ...ticks.map(({ at, x, step }) => {
        const tick = make("span", "tick", timeline.timed ? tickLabel(at, step) : String(Math.round(at)));
        tick.style.setProperty("--x", x);
        return tick;
      }),
    );
  }

  bar(item, timeline, scale) {
    const bar = make("div", `bar bar-${item.kind}`);
    const from = scale.x(item.from);
    bar.style.setProperty("--x", from);
    bar.style.setProperty("--w", scale.x(item.to) - from);
    bar.dataset.place = item.place;
    if (tone(item)) bar.dataset.tone = tone(item);
    if (item.withdrawn) bar.dataset.withdrawn = "";
    const length = item.to - item.from;
    bar.title = [nameOf(item), titleOf(item).slice(0, 200), outcomeOf(item), timeline.timed && length ? seconds(length) : ""]
      .filter(Boolean)
      .join(" · ");
    const buckets = Math.min(MOST_BUCKETS, Math.max(3, Math.round((item.chunks ?? 0) / PIECES_PER_BUCKET)));
    const shape = timeline.timed ? pace(item, timeline.times, buckets) : null;
    if (shape) bar.append(paceShape(shape));
    if (length > 0 && !shape) bar.append(make("span", "bar-label", titleOf(item).slice(0, 120)));
    this.bars.set(item.place, bar);
    return bar;
  }

  /** Marks an item and shows it. */
  mark(place) {
    this.bars.get(this.chosen)?.classList.remove("chosen");
    this.chosen = place;
    const bar = this.bars.get(place);
    bar?.classList.add("chosen");
    if (bar && this.zoom > 1) {
      const middle = bar.offsetLeft + bar.offsetWidth / 2;
      const { scrollLeft, clientWidth } = this.scroller;
      if (middle < scrollLeft || middle > scrollLeft + clientWidth) this.scroller.scrollLeft = middle - clientWidth / 2;
    }
  }

  /** The moment that the replay shows. */
  play(x) {
    this.head.style.setProperty("--x", x);
    if (this.zoom <= 1) return;
    const at = x * this.plot.clientWidth;
    const { scrollLeft, clientWidth } = this.scroller;
    if (at < scrollLeft || at > scrollLeft + clientWidth) this.scroller.scrollLeft = at - clientWidth / 4;
  }

  /** So many times as wide as the window; what is in its middle stays there. */
  widen(zoom) {
    const middle = (this.scroller.scrollLeft + this.scroller.clientWidth / 2) / this.plot.clientWidth;
    this.zoom = zoom;
    this.plot.style.setProperty("--zoom", zoom);
    this.scroller.scrollLeft = middle * this.plot.clientWidth - this.scroller.clientWidth / 2;
  }
}

function cutMark({ from, to }, scale) {
  const mark = make("div", "cut", make("span", "", seconds(to - from)));
  mark.style.setProperty("--x", scale.x(from));
  mark.style.setProperty("--w", scale.x(to) - scale.x(from));
  return mark;
}

function paceShape(shape) {
  const points = shape.map((share, at) => `${at},${(1 - share).toFixed(3)} ${at + 1},${(1 - share).toFixed(3)}`).join(" ");
  return svg(
    "svg",
    { class: "pace", viewBox: `0 0 ${shape.length} 1`, preserveAspectRatio: "none" },
    svg("polygon", { points: `0,1 ${points} ${shape.length},1` }),
  );
}
