// The items of a run as a list. Each opens to what belongs to it: arguments, output, changes, reasons.

import { button, link } from "../answer/dom.js";
import { count, dollars, tokens } from "../answer/words.js";
import { make } from "./dom.js";
import { callWords, lengthOf, moment, nameOf, outcomeOf, pretty, seconds, titleOf, tone } from "./words.js";

const TITLE_CHARS = 160;
const ABOVE_PX = 48; // of the list, over an item that it is scrolled to

export class ItemList {
  /** `choose(place)` is called when an item is opened; `fork(item)` begins a fork after it, where that is possible. */
  constructor(label, { choose, fork = null }) {
    this.choose = choose;
    this.fork = fork;
    this.canFork = false;
    this.node = make("ol", "items");
    this.node.setAttribute("aria-label", label);
    this.rows = new Map();
    this.chosen = null;
  }

  /** Draws what is new or has changed; what is open stays open. */
  draw(items) {
    items.forEach((item) => {
      const known = this.rows.get(item.place);
      const state = JSON.stringify(item);
      if (known?.state === state) return;
      const row = this.row(item);
      if (known) {
        row.open = known.row.open;
        known.row.parentNode.replaceChildren(row);
      } else this.node.append(make("li", "", row));
      this.rows.set(item.place, { row, state });
    });
    this.mark(this.chosen);
  }

  row(item) {
    const length = lengthOf(item);
    const outcome = make("span", "item-outcome", outcomeOf(item).slice(0, TITLE_CHARS));
    const summary = make(
      "summary",
      "",
      make("span", "item-time", moment(item.writing_start ?? item.start ?? item.end) || `#${item.seq}`),
      make("span", `item-kind kind-${item.kind}`, nameOf(item)),
      make("span", "item-title", titleOf(item).slice(0, TITLE_CHARS)),
      outcome,
      make("span", "item-length", length === null ? "" : seconds(length)),
    );
    if (tone(item)) outcome.dataset.tone = tone(item);
    const body = make("div", "item-body");
    const row = make("details", "item", summary, body);
    row.fill = () => {
      if (!body.childNodes.length) body.append(...this.details(item));
    };
    row.addEventListener("toggle", () => {
      if (!row.open) return;
      row.fill();
      this.choose(item.place);
    });
    return row;
  }

  details(item) {
    const parts = [facts(item), ...texts(item)];
    if (item.run_id) parts.push(link("Inspect the agent's run", `/?run=${encodeURIComponent(item.run_id)}`));
    if (this.fork && this.canFork && item.kind !== "finish") parts.push(button("Fork from here", () => this.fork(item), "quiet-button"));
    return parts;
  }

  mark(place, { show = false } = {}) {
    this.rows.get(this.chosen)?.row.classList.remove("chosen");
    this.chosen = place;
    const row = this.rows.get(place)?.row;
    if (!row) return;
    row.classList.add("chosen");
    if (!show) return;
    row.fill(); // before it is seen how much room it takes
    row.open = true;
    this.reveal(row);
  }

  /** Where the list scrolls by itself, the page stays where it is. */
  reveal(row) {
    const { node } = this;
    if (node.scrollHeight <= node.clientHeight + 1) {
      row.scrollIntoView({ block: "nearest" });
      return;
    }
    const [list, shown] = [node.getBoundingClientRect(), row.getBoundingClientRect()];
    const inView = shown.top >= list.top && shown.bottom <= Math.min(list.bottom, innerHeight);
    if (!inView) node.scrollTop += shown.top - list.top - ABOVE_PX;
  }
}

// ── what an item opens to ───────────────────────────────────────────────────────────────────────────────────

function facts(item) {
  const list = make("dl", "item-facts");
  for (const [name, value] of rowsOf(item)) {
    if (value !== undefined && value !== null && value !== "") list.append(make("dt", "", name), make("dd", "", String(value)));
  }
  return list;
}

function rowsOf(item) {
  const place = ["Events", item.end_seq > item.seq ? `${item.seq} to ${item.end_seq}` : item.seq];
  switch (item.kind) {
    case "question":
      return [["Files", item.files?.join(", ")], place];
    case "attempt":
      return [
        ["Provider", item.provider],
        ["Model", item.model],
        ["Step", item.block_id],
        ["First token", seconds(item.first_token_s)],
        ["Ended", outcomeOf(item)],
        ["Why", item.reason],
        ["Text", item.goes_on ? "goes on from the attempt before" : item.restarts ? "begins anew" : ""],
        ["Tokens", tokens(item.usage)],
        ["Cost", dollars(item.cost_usd)],
        ["Not told", item.ignored?.join(", ")],
        place,
      ];
    case "text":
    case "reasoning":
      return [
        ["Step", item.block_id],
        ["Model", callWords(item)],
        ["Length", `${count(item.chars ?? 0)} characters in ${count(item.chunks ?? 0)} pieces`],
        ["Speed", item.tokens_per_s ? `about ${item.tokens_per_s} tokens/s` : ""],
        place,
      ];
    case "tool_call":
      return [
        ["Ran from", item.writing_start === undefined ? "" : moment(item.start)], // the line says when it was written
        ["Took", seconds(item.duration_s)],
        ["Exit code", item.exit_code],
        ["Not executed", item.not_executed?.reason],
        ["Files", item.files?.join(", ")],
        place,
      ];
    case "approval":
      return [
        ["Directory", item.directory],
        ["Why", item.reason],
        ["Asked for", item.requester_name || item.requester],
        ["Decision", outcomeOf(item)],
        ["By", item.by],
        ["Said", item.answer_reason],
        ["Waited", seconds(item.waited_s)],
        place,
      ];
    case "stall":
      return [["Silent for", seconds(item.silent_s)], ["Provider", item.provider], place];
    case "failover":
      return [["Why", item.reason], ["Step", item.block_id], place];
    case "step":
      return [["State", item.state ?? "running"], ["Try", item.number ?? 1], ["Error", item.error?.message], ["Again at", moment(item.retry_at)], place];
    case "finish":
      return [["Status", item.status], ["Error", item.error?.message], place];
    case "takeover":
      return [["Claims of the run", item.claims], ["Step", item.block_id], place];
    case "signal":
      return [["By", item.by], place];
    default:
      return [place];
  }
}

function texts(item) {
  switch (item.kind) {
    case "question":
    case "text":
    case "reasoning":
      return block("", item.text);
    case "notice":
    case "stall":
      return block("", item.text);
    case "approval":
      return block("Command", item.command);
    case "signal":
      return block("Payload", pretty(item.payload));
    case "step":
      return block("Output", pretty(item.output));
    case "tool_call":
      return [
        ...(item.diff ? [diffBlock(item)] : []),
        ...block("What the agent did", item.steps?.join("\n")),
        ...block("Arguments", item.arguments ? pretty(item.arguments) : item.arguments_text),
        ...block("Output", item.output),
      ];
    default:
      return [];
  }
}

function block(label, text) {
  if (!text) return [];
  return [figure(label, make("pre", "", text))];
}

function figure(label, content) {
  content.tabIndex = 0; // long lines are scrolled by keyboard too
  content.setAttribute("role", "group");
  content.setAttribute("aria-label", label || "Text");
  return make("figure", "", label ? make("figcaption", "", label) : "", content);
}

function diffBlock({ diff, added = 0, removed = 0 }) {
  const shown = make("pre", "diff");
  for (const line of diff.split("\n")) {
    const sign = { "+": "plus", "-": "minus" }[line[0]];
    shown.append(make("span", sign ?? "", line), "\n");
  }
  return figure(`Change: +${added} −${removed}`, shown);
}
