// The choice of a model: what was chosen last, and what the server lists. The providers are asked for their lists only
// once a person looks for a model.

import { read } from "../net/api.js";

const MODEL = "tailrace.model";
const AGENT = "tailrace"; // the agent with the configured model

export class ModelPicker {
  /** `configured` is the name of the model that is asked where none is chosen; `changed()` is called after a choice. */
  constructor(select, configured = "", changed = () => {}) {
    Object.assign(this, { select, configured });
    this.listed = null; // a promise, once it was asked for
    select.replaceChildren(new Option(configured || "The configured model", ""));
    const kept = localStorage.getItem(MODEL) ?? "";
    if (kept && kept !== configured) select.append(new Option(kept, kept));
    select.value = kept === configured ? "" : kept;
    select.addEventListener("change", () => {
      localStorage.setItem(MODEL, select.value);
      changed();
      document.getElementById("message").focus();
    });
    for (const kind of ["focus", "pointerenter"]) select.addEventListener(kind, () => this.load());
    select.addEventListener("mousedown", (event) => this.openWhole(event));
  }

  /** The model that was chosen; empty where the configured one is asked. */
  get chosen() {
    return this.select.value;
  }

  /** Whether there is such a model; then it is chosen. */
  async choose(name) {
    await this.load();
    const wanted = name === this.configured || name === "default" ? "" : name;
    if (![...this.select.options].some(({ value }) => value === wanted)) return false;
    this.select.value = wanted;
    this.select.dispatchEvent(new Event("change"));
    return true;
  }

  load() {
    this.listed ??= this.list();
    return this.listed;
  }

  /** A list that opens before it is whole would stay as short as it was. */
  async openWhole(event) {
    if (this.whole) return;
    event.preventDefault();
    await this.load();
    this.select.focus();
    try {
      this.select.showPicker();
    } catch {
      // a browser without it: the next click opens the list
    }
  }

  async list() {
    const { data } = await read("/v1/models").catch(() => ({ data: [] })); // a key may not be allowed to see them
    const groups = new Map();
    const chosen = this.select.value;
    for (const { id, owned_by: provider, display_name: name } of data) {
      if (id === AGENT || id === this.configured) continue;
      if (!groups.has(provider)) groups.set(provider, group(provider));
      groups.get(provider).append(new Option(name, id));
      if (id === chosen) [...this.select.children].find(({ value }) => value === id)?.remove(); // it is in its group
    }
    this.select.append(...groups.values());
    this.select.value = chosen;
    this.whole = true;
  }
}

const group = (label) => Object.assign(document.createElement("optgroup"), { label });
