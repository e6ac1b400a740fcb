// Numbers as people read them.

/** 43 ms, 0.31 s, 4.2 s, 12 s, 3 min 5 s, 2 h 5 min, 4 days */
export function seconds(value) {
  if (value < 0.1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${Number(value.toFixed(value < 1 ? 2 : 1))} s`;
  const whole = Math.round(value);
  const minutes = Math.floor(whole / 60);
  if (!minutes) return `${whole} s`;
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** Whole seconds, of what still goes on. */
export function elapsed(value) {
  const whole = Math.max(0, Math.floor(value));
  return whole < 100 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** In and out, as the provider counts them and `tailrace runs` shows them; with `~` where it has not, as of an answer
 * that was stopped: an estimate. */
export function tokens(usage) {
  const { input_tokens: asked = 0, output_tokens: answered = 0, estimated_tokens: estimated = 0 } = usage ?? {};
  const about = estimated ? "~" : "";
  return asked || answered ? `${about}${count(asked)} in, ${about}${count(answered)} out` : "";
}

export const count = (value) => value.toLocaleString("en-US");

/** $0.0021, $0.14, $12.30; "" where it is not known */
export function dollars(usd) {
  if (usd === null || usd === undefined) return "";
  if (usd && usd < 0.0001) return "<$0.0001";
  return `$${usd.toFixed(usd && usd < 0.01 ? 4 : 2)}`;
}
