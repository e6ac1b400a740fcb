// The items of a timeline with a place on the axis and in a lane. Pure.

export const LANES = [
  { id: "step", label: "Steps", kinds: ["step"] },
  { id: "attempt", label: "Model", kinds: ["attempt"] },
  { id: "reasoning", label: "Thinking", kinds: ["reasoning"] },
  { id: "text", label: "Text", kinds: ["text"] },
  { id: "tool", label: "Tools", kinds: ["tool_call"] },
  { id: "approval", label: "Approvals", kinds: ["approval"] },
  {
    id: "event",
    label: "Events",
    kinds: ["question", "stall", "failover", "notice", "takeover", "compression", "fork", "state", "signal", "delivery", "finish"],
  },
];

export const isTimed = (timeline) => (timeline.times ?? []).length > 0;

/**
 * The timeline with a `from` and a `to` for every item: seconds, or the numbers of events where `timed` is false, as for
 * a log without times. `now` is where the items end that go on.
 */
export function placed(timeline, { timed = isTimed(timeline), now = null } = {}) {
  const end = now ?? timeline.duration_s ?? 0;
  let last = 0;
  const items = timeline.items.map((item, place) => {
    const [from, to] = timed ? timeSpan(item, last, end) : [item.seq, item.end_seq];
    last = Math.max(last, from);
    return { ...item, place, from, to: Math.max(from, to) };
  });
  return { ...timeline, timed, items, end: timed ? end : timeline.last_seq };
}

function timeSpan(item, last, end) {
  let from = item.start ?? item.end ?? last;
  if (item.kind === "tool_call" && item.writing_start !== undefined) from = Math.min(from, item.writing_start);
  return [from, item.end ?? (isOpen(item) ? end : from)];
}

const isOpen = (item) =>
  (item.kind === "attempt" && (item.outcome ?? "running") === "running") ||
  (item.kind === "tool_call" && ["writing", "waiting", "running"].includes(item.state ?? "waiting")) ||
  (item.kind === "approval" && !item.decision) ||
  (item.kind === "step" && (item.state ?? "running") === "running");

/** The lanes that have items, each with rows in which no two items overlap. */
export function lanesOf(items) {
  return LANES.map((lane) => ({ ...lane, rows: rows(items.filter(({ kind }) => lane.kinds.includes(kind))) })).filter(
    (lane) => lane.rows.length,
  );
}

const MAX_ROWS = 8; // more than that overlap in the last one

function rows(items) {
  const made = [];
  for (const item of [...items].sort((one, other) => one.from - other.from || one.place - other.place)) {
    const free = made.find((row) => row.end <= item.from) ?? (made.length < MAX_ROWS ? null : made.at(-1));
    const row = free ?? { items: [], end: 0 };
    if (!free) made.push(row);
    row.items.push(item);
    row.end = item.to;
  }
  return made.map(({ items: inRow }) => inRow);
}

/** How fast pieces came within an item: shares of the busiest of `buckets` stretches. Nothing for a short one. */
export function pace(item, times, buckets) {
  if (!times.length || (item.chunks ?? 0) < 8 || item.to - item.from <= 0) return null;
  const counts = new Float64Array(buckets);
  let at = lastBefore(times, item.seq);
  for (; at < times.length && times[at][0] <= item.end_seq; at++) {
    const next = Math.min(times[at + 1]?.[0] ?? item.end_seq + 1, item.end_seq + 1);
    const pieces = next - Math.max(times[at][0], item.seq);
    const bucket = Math.floor(((times[at][1] - item.from) / (item.to - item.from)) * buckets);
    if (pieces > 0) counts[Math.min(buckets - 1, Math.max(0, bucket))] += pieces;
  }
  const most = Math.max(...counts);
  return most ? [...counts].map((count) => count / most) : null;
}

/** The place of the last of `times` whose number is not greater. */
export function lastBefore(times, seq) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle][0] <= seq) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}
