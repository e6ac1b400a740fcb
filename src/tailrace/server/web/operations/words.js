// Figures as the operator's views write them. What is not known is "–".

import { count, dollars, seconds } from "../answer/words.js";

export const UNKNOWN = "–";

export const money = (usd) => dollars(usd) || UNKNOWN;

export const number = (value) => (value === null || value === undefined ? UNKNOWN : count(value));

export const span = (value) => (value === null || value === undefined ? UNKNOWN : seconds(value));

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
