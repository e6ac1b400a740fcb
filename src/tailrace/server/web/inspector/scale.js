// Where on the axis a moment stands. Long pauses in which nothing happened can be drawn short. Pure.

const WORTH_CUTTING = 1.5; // times as long as what is left of it
const SHORTEST = 0.5; // seconds: a shorter pause is never cut

/** The moments at which something happened in placed timelines, in order. */
export function momentsOf(timelines) {
  const moments = [0];
  for (const { items, times = [], timed, end } of timelines) {
    if (timed) for (const [, at] of times) moments.push(at);
    for (const { from, to } of items) moments.push(from, to);
    moments.push(end);
  }
  return Float64Array.from(moments).sort();
}

export class Scale {
  /** `moments` in order; `compress`: pauses are shortened. */
  constructor(moments, compress) {
    const end = Math.max(moments.at(-1) ?? 0, 0.001);
    const limit = compress ? pauseLimit(moments) : Infinity;
    this.end = end;
    this.gaps = []; // { from, to } of what was cut
    this.from = [0]; // knots: moments, and where they are drawn
    this.drawn = [0];
    let cut = 0;
    for (let at = 1; at < moments.length; at++) {
      const pause = moments[at] - moments[at - 1];
      if (pause <= WORTH_CUTTING * limit) continue;
      this.knot(moments[at - 1], moments[at - 1] - cut);
      cut += pause - limit;
      this.knot(moments[at], moments[at] - cut);
      this.gaps.push({ from: moments[at - 1], to: moments[at] });
    }
    this.length = end - cut;
    this.knot(end, this.length);
  }

  knot(moment, drawn) {
    this.from.push(moment);
    this.drawn.push(drawn);
  }

  /** 0 to 1. */
  x(moment) {
    return clamp(between(this.from, this.drawn, moment) / this.length);
  }

  moment(x) {
    return between(this.drawn, this.from, clamp(x) * this.length);
  }

  /** Round moments to write on an axis that has room for about `room` of them, each with the seconds between two. */
  ticks(room) {
    const step = roundStep(this.length / Math.max(2, room));
    const ticks = [];
    let last = -1;
    for (let number = 0; number * step <= this.end && ticks.length < 1000; number++) {
      const at = number * step;
      const x = this.x(at);
      const gap = this.gaps.find(({ from, to }) => at > from && at < to);
      if (gap) {
        number = Math.max(number, Math.ceil(gap.to / step) - 1);
        continue;
      }
      if (x - last < 0.7 / room) continue;
      last = x;
      ticks.push({ at, x, step });
    }
    return ticks;
  }
}

/** A pause longer than this is cut to it: several usual ones, and a part of the time in which things happen. */
function pauseLimit(moments) {
  const pauses = [];
  for (let at = 1; at < moments.length; at++) if (moments[at] > moments[at - 1]) pauses.push(moments[at] - moments[at - 1]);
  const usual = Float64Array.from(pauses).sort()[pauses.length >> 1] ?? 0;
  const short = Math.max(SHORTEST, 4 * usual);
  const busy = pauses.reduce((sum, pause) => sum + Math.min(pause, short), 0);
  return Math.max(short, busy / 12);
}

/** Whether cutting the pauses would tell more. */
export function hasLongPauses(moments) {
  const whole = new Scale(moments, false).length;
  return new Scale(moments, true).length < whole * 0.7;
}

function between(from, to, value) {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle;
    else high = middle;
  }
  const span = from[high] - from[low];
  return span > 0 ? to[low] + ((value - from[low]) / span) * (to[high] - to[low]) : to[high];
}

const clamp = (x) => Math.min(1, Math.max(0, x));

function roundStep(rough) {
  const units = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
  return units.find((unit) => unit >= rough) ?? Math.ceil(rough / 3600) * 3600;
}
