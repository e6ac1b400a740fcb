// Which windows may hold a stream of the server now. Decides only: it is told what happens and the time, and says who
// gets a place and who is asked for it back. Nobody who has a place loses it while there is room for all.

export const PLACES = 4; // a browser has six connections to a server: one is for the list of approvals, one to ask
export const TURN_MS = 1000; // so long a window keeps its place where others wait
const GONE_MS = 5000; // a window that does not give its place back for so long is no longer there

export class Turns {
  constructor(places = PLACES, turnMs = TURN_MS) {
    this.places = places;
    this.turnMs = turnMs;
    this.streams = new Map(); // id → {id, hidden, since: null while it waits, askedAt}, in the order in which they asked
  }

  want(id, hidden) {
    this.streams.set(id, { id, hidden, since: null, askedAt: null });
  }

  show(id, hidden) {
    const stream = this.streams.get(id);
    if (stream) stream.hidden = hidden;
  }

  leave(id) {
    this.streams.delete(id);
  }

  /** `granted` have a place from now on, `asked` are to give theirs back, `gone` have not; `next` is when to look again, if ever. */
  due(now) {
    const isGone = ({ askedAt }) => askedAt !== null && now - askedAt >= GONE_MS;
    const gone = [...this.streams.values()].filter(isGone).map(({ id }) => id);
    for (const id of gone) this.leave(id);
    const granted = [];
    const asked = [];
    const moments = [];
    for (const [hidden, share] of this.shares()) {
      const own = [...this.streams.values()].filter((stream) => stream.hidden === hidden);
      const waiting = own.filter(({ since }) => since === null);
      const holding = own.filter(({ since, askedAt }) => since !== null && askedAt === null);
      holding.sort((one, other) => one.since - other.since);
      while (waiting.length && holding.length < share && this.held < this.places) {
        const stream = waiting.shift();
        stream.since = now;
        holding.push(stream);
        granted.push(stream.id);
      }
      if (!holding.length || holding.length < share || (holding.length === share && !waiting.length)) continue;
      const ends = holding.length > share ? now : holding[0].since + this.turnMs;
      if (ends > now) moments.push(ends);
      else {
        holding[0].askedAt = now;
        asked.push(holding[0].id);
      }
    }
    for (const { askedAt } of this.streams.values()) if (askedAt !== null) moments.push(askedAt + GONE_MS);
    return { granted, asked, gone, next: moments.length ? Math.min(...moments) : null };
  }

  get held() {
    return [...this.streams.values()].filter(({ since }) => since !== null).length;
  }

  /** Windows that are seen come first; those that are not have what is left over, and one place at least. */
  shares() {
    const behind = [...this.streams.values()].filter(({ hidden }) => hidden).length;
    const seen = this.streams.size - behind;
    const left = Math.min(behind, Math.max(1, this.places - seen));
    return [
      [false, this.places - left],
      [true, left],
    ];
  }
}
