// The latest runs that are in no conversation of people: of programs, calls of the API, and instances of sequences.

import { read, wordsOf } from "../net/api.js";
import { ago } from "./ago.js";

const SHOWN = 20;
const LOOKED_AT = 60; // turns, most of which may be of conversations
const LIVE = new Set(["running", "pending", "scheduled", "waiting"]);

export class RunList {
  /** `isListed(session)`: whether the conversation of a run is in the list of those. */
  constructor(section, list, note, isListed) {
    Object.assign(this, { section, list, note, isListed });
    section.addEventListener("toggle", () => this.refresh());
  }

  async refresh() {
    if (!this.section.open) return;
    try {
      const [turns, calls, instances] = await Promise.all([
        read(`/runs?kind=agent&limit=${LOOKED_AT}`),
        read(`/runs?kind=call&limit=${SHOWN}`),
        read(`/instances?limit=${SHOWN}`),
      ]);
      const others = turns.data.filter(({ session }) => !session || !this.isListed(session));
      this.draw([...others.map(runItem), ...calls.data.map(runItem), ...instances.data.map(instanceItem)]);
    } catch (error) {
      this.note.textContent = wordsOf(error);
    }
  }

  draw(items) {
    items.sort((one, other) => other.at - one.at);
    this.list.replaceChildren(...items.slice(0, SHOWN).map(row));
    this.note.textContent = items.length ? "" : "None yet.";
  }
}

function runItem(run) {
  const name = run.input || run.model || "Call";
  return { at: run.created_at, name, status: run.status, href: `/?run=${encodeURIComponent(run.id)}` };
}

function instanceItem(instance) {
  const { created_at: at, name, state: status, id } = instance;
  return { at, name, status, href: `/?instance=${encodeURIComponent(id)}` };
}

function row({ at, name, status, href }) {
  const item = document.createElement("li");
  item.className = "row";
  item.dataset.status = LIVE.has(status) ? "running" : status;
  const link = document.createElement("a");
  link.href = href;
  link.textContent = name;
  link.title = name;
  const badge = document.createElement("span");
  badge.className = "badge";
  badge.textContent = status === "completed" ? "" : status;
  const when = document.createElement("time");
  when.textContent = ago(at);
  item.append(link, badge, when);
  return item;
}
