// The days of the usage as bars, with a part for each key: money or tokens, as chosen. The table by day has the figures.

import { button, element, make } from "../answer/dom.js";
import { section } from "../operations/frame.js";
import { money, number } from "../operations/words.js";

const COLOURED = 5; // keys with a colour of their own: `data-part` 0 to 4
const UNITS = {
  Money: { of: ({ usd }) => usd ?? 0, write: money },
  Tokens: { of: ({ input_tokens: asked = 0, output_tokens: answered = 0 }) => asked + answered, write: number },
};

/** `rows` are the usage of a day, a key and a model each; `days` are drawn, the oldest first. */
export function usageChart(rows, days) {
  const keys = largestFirst(rows);
  const bars = make("div", "chart-bars");
  bars.setAttribute("role", "img");
  const most = make("p", "chart-most");
  const show = (unit) => {
    for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.textContent === unit));
    const { write, of } = UNITS[unit];
    const sums = days.map((day) => sumsOf(rows.filter((row) => row.day === day), keys, of));
    const totals = sums.map((parts) => parts.reduce((sum, part) => sum + part, 0));
    const peak = Math.max(...totals);
    most.textContent = `at most ${write(peak)} a day`;
    bars.setAttribute("aria-label", `${unit} by day and key, ${most.textContent}: ${days[totals.indexOf(peak)]}`);
    bars.replaceChildren(...sums.map((parts, at) => bar(parts, peak, `${days[at]}: ${told(parts, keys, write)}`)));
  };
  const choices = Object.keys(UNITS).map((unit) => button(unit, () => show(unit), "ops-small"));
  const axis = element("div", [element("span", [days[0]]), element("span", [days.at(-1)])], "chart-axis");
  const legend = element("p", keys.map((key, at) => part("span", at, [key])), "chart-legend");
  show(rows.some(UNITS.Money.of) ? "Money" : "Tokens");
  return section("Day by day", [most, bars, axis, legend], { wide: true, tools: [element("div", choices, "usage-spans")] });
}

/** The keys by their tokens; those beyond the coloured ones are one. */
function largestFirst(rows) {
  const tokens = new Map();
  for (const row of rows) tokens.set(row.key, (tokens.get(row.key) ?? 0) + UNITS.Tokens.of(row));
  const keys = [...tokens.keys()].sort((a, b) => tokens.get(b) - tokens.get(a));
  return keys.length > COLOURED ? [...keys.slice(0, COLOURED - 1), "others"] : keys;
}

function sumsOf(rows, keys, of) {
  const sums = keys.map(() => 0);
  for (const row of rows) sums[keys.includes(row.key) ? keys.indexOf(row.key) : keys.length - 1] += of(row);
  return sums;
}

const told = (parts, keys, write) => parts.flatMap((value, at) => (value ? [`${keys[at]} ${write(value)}`] : [])).join(", ") || "nothing";

function bar(parts, peak, title) {
  const node = element("div", parts.map((value, at) => part("i", at, [], peak && (value / peak) * 100)));
  node.title = title;
  return node;
}

function part(tag, at, children, height = 0) {
  const node = element(tag, children);
  node.dataset.part = at;
  if (height) node.style.height = `${height}%`;
  return node;
}
