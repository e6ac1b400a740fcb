// How long ago something was, in as few letters as a list has room for.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `at` and `now` are seconds since the epoch. */
export function ago(at, now = Date.now() / 1000) {
  const since = Math.max(0, now - at);
  if (since < MINUTE) return "now";
  if (since < HOUR) return `${Math.floor(since / MINUTE)} min`;
  if (since < DAY) return `${Math.floor(since / HOUR)} h`;
  if (since < 7 * DAY) return `${Math.floor(since / DAY)} d`;
  const date = new Date(at * 1000);
  const year = date.getFullYear() === new Date(now * 1000).getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}
