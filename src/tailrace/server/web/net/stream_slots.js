// Which windows may hold a stream of the server now. Decides only: it is told what happens and the time, and says who
// gets a slot and who is asked for it back. No window loses its slot while there is room for all. Windows in
// which something runs go before idle ones, of which one still gets a slot for a moment now and then: something may have
// begun elsewhere.

export const SLOTS = 4; // a browser has six connections to a server: one is for the list of approvals, one to ask
export const BUSY_MS = 1000; // so long a window keeps its slot where others wait in which something runs
export const IDLE_MS = 10_000; // so long where only idle ones wait
const GONE_MS = 5000; // a window that does not give its slot back for so long is no longer there

export class StreamSlots {
  constructor(slots = SLOTS, busyMs = BUSY_MS, idleMs = IDLE_MS) {
    Object.assign(this, { slots, busyMs, idleMs });
    // id → {id, hidden, runs, since: null while it waits, askedAt}, in the order in which they asked
    this.streams = new Map();
    this.idleAt = -Infinity; // when an idle window last had a slot
  }

  /** `runs`: something runs in the window, or is being asked. */
  want(id, hidden, runs = true) {
    this.streams.set(id, { id, hidden, runs, since: null, askedAt: null });
  }

  show(id, hidden, runs = true) {
    const stream = this.streams.get(id);
    if (stream) Object.assign(stream, { hidden, runs });
  }

  leave(id) {
    this.streams.delete(id);
  }

  /**
   * `granted` have a slot from now on, `asked` are to give theirs back, `gone` have not done so; `next` is when to look
   * again, if ever.
   */
  due(now) {
    const isGone = ({ askedAt }) => askedAt !== null && now - askedAt >= GONE_MS;
    const gone = [...this.streams.values()].filter(isGone).map(({ id }) => id);
    for (const id of gone) this.leave(id);
    if ([...this.streams.values()].some(({ runs, since }) => !runs && since !== null)) this.idleAt = now;
    const granted = [];
    const asked = [];
    const moments = [];
    for (const [hidden, share] of this.shares()) {
      const own = [...this.streams.values()].filter((stream) => stream.hidden === hidden);
      const waiting = own.filter(({ since }) => since === null);
      const holding = own.filter(({ since, askedAt }) => since !== null && askedAt === null);
      while (waiting.length && holding.length < share && this.held < this.slots) {
        const stream = this.first(waiting, now);
        waiting.splice(waiting.indexOf(stream), 1);
        stream.since = now;
        if (!stream.runs) this.idleAt = now;
        holding.push(stream);
        granted.push(stream.id);
      }
      holding.sort((one, other) => one.runs - other.runs || one.since - other.since);
      if (!holding.length || holding.length < share || (holding.length === share && !waiting.length)) continue;
      const ends = holding.length > share ? now : this.endOf(holding[0], this.first(waiting, now));
      if (ends > now) moments.push(ends);
      else {
        holding[0].askedAt = now;
        asked.push(holding[0].id);
      }
    }
    for (const { askedAt } of this.streams.values()) if (askedAt !== null) moments.push(askedAt + GONE_MS);
    return { granted, asked, gone, next: moments.length ? Math.min(...moments) : null };
  }

  /** Who goes first: a window in which something runs, or an idle one where none has had a slot for long. */
  first(waiting, now) {
    const isLate = now - this.idleAt >= this.idleMs;
    return waiting.find(({ runs }) => runs !== isLate) ?? waiting[0];
  }

  /** When `holder` has to give its slot back because of who waits. */
  endOf(holder, waiter) {
    if (waiter.runs) return holder.since + this.busyMs;
    if (!holder.runs) return holder.since + this.idleMs;
    return Math.max(holder.since + this.busyMs, this.idleAt + this.idleMs);
  }

  get held() {
    return [...this.streams.values()].filter(({ since }) => since !== null).length;
  }

  /** Windows that are seen come first; those that are not have what is left over, and one slot at least. */
  shares() {
    const behind = [...this.streams.values()].filter(({ hidden }) => hidden).length;
    const seen = this.streams.size - behind;
    const left = Math.min(behind, Math.max(1, this.slots - seen));
    return [
      [false, this.slots - left],
      [true, left],
    ];
  }
}
