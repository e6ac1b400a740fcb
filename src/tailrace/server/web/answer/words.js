// Numbers as people read them.

export function seconds(value) {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 100) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
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

export function dollars(value) {
  if (value > 0 && value < 0.0001) return "< $0.0001";
  return `$${value.toFixed(value < 1 ? 4 : 2)}`;
}
