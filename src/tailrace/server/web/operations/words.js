// Figures as the operator's views write them. What is not known is "–".

export const UNKNOWN = "–";

/** $0.0021, $0.14, $12.30 */
export function money(usd) {
  if (usd === null || usd === undefined) return UNKNOWN;
  if (usd && usd < 0.0001) return "<$0.0001";
  return `$${usd.toFixed(usd && usd < 0.01 ? 4 : 2)}`;
}

export const number = (value) => (value === null || value === undefined ? UNKNOWN : value.toLocaleString("en"));

/** 43 ms, 0.31 s, 12 s, 3 min, 2 h 5 min, 4 days */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (!minutes) return `${Math.round(seconds)} s`;
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** The clock of the reader: today's times alone, other days with their date. */
export function moment(at) {
  const when = new Date(at * 1000);
  const today = when.toDateString() === new Date().toDateString();
  const time = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return today ? time : `${when.toLocaleDateString("en-CA")} ${time.slice(0, 5)}`;
}

export const runAddress = ({ id, kind }) =>
  kind === "sequence" ? `/?instance=${encodeURIComponent(id)}` : `/?run=${encodeURIComponent(id)}`;

/** "good", "bad", "open" or nothing: what a colour says beside the word. */
export const TONES = {
  completed: "good",
  connected: "good",
  running: "open",
  asking: "warn",
  waiting: "warn",
  paused: "warn",
  incomplete: "warn",
  unserved: "warn",
  failed: "bad",
  orphaned: "bad",
  parked: "bad",
  down: "bad",
};
