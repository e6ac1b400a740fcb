// Who may use the server: what each key has used today beside its limits; keys are made and revoked here.

import { copyText } from "../answer/copy.js";
import { button, element, make } from "../answer/dom.js";
import { iconButton } from "../icons.js";
import { ask, post, wordsOf } from "../net/api.js";
import { meter } from "./frame.js";
import { cut, Table } from "./table.js";
import { money, number } from "./words.js";

const SCOPES = ["models", "runs", "approvals", "admin"];

export class KeysView {
  /** `changed()` is called when a key was made or revoked. */
  constructor(changed) {
    this.changed = changed;
    this.table = new Table("Keys today", this.columns(), ({ name }) => name, { none: "Nothing was used today, and there is no key." });
    this.add = button("New key", () => this.ask(), "ops-small");
  }

  update(keys) {
    this.table.update(keys);
  }

  columns() {
    return [
      { title: "Key", of: ({ name }) => cut(name) },
      { title: "Scopes", less: true, of: ({ scopes }) => cut(scopes.join(", ")) },
      { title: "Calls", numeric: true, less: true, of: ({ calls }) => number(calls) },
      { title: "Tokens today", of: (key) => limited(number(key.tokens), key.tokens, key.tokens_per_day, number) },
      { title: "Money today", of: (key) => limited(spent(key), key.usd, key.usd_per_day, money) },
      { title: "Requests a minute", numeric: true, less: true, of: (key) => (key.requests_per_minute ? `at most ${key.requests_per_minute}` : "any") },
      { title: "Revoke", of: (key) => (key.source === "store" ? this.revoker(key) : "") },
    ];
  }

  revoker({ name }) {
    const made = iconButton("trash-2", `Revoke ${name}`, () => this.confirm(name));
    made.dataset.state = name;
    return made;
  }

  // ── dialogs ───────────────────────────────────────────────────────────────────────────────────────────────

  ask() {
    const fields = [
      field("Name", "name", { required: true, maxLength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" }),
      field("Models, with * for any text; empty: all", "models", { placeholder: "openai/*, tailrace" }),
      field("Requests a minute", "requests_per_minute", { type: "number", min: 1, step: 1 }),
      field("Tokens a day", "tokens_per_day", { type: "number", min: 1, step: 1 }),
      field("Dollars a day", "usd_per_day", { type: "number", min: 0.01, step: "any" }),
    ];
    const scopes = element("fieldset", [element("legend", ["May use"]), ...SCOPES.map(scope)], "ops-scopes");
    this.dialog("New key", [fields[0], scopes, ...fields.slice(1)], "Make the key", async (form, close) => {
      const given = new FormData(form);
      const body = { name: given.get("name"), scopes: given.getAll("scopes"), models: given.get("models").split(",").map((one) => one.trim()).filter(Boolean) };
      for (const limit of ["requests_per_minute", "tokens_per_day", "usd_per_day"]) if (given.get(limit)) body[limit] = Number(given.get(limit));
      const { name, key } = await (await post("/keys", body)).json();
      close();
      this.showKey(name, key);
    });
  }

  showKey(name, key) {
    const shown = element("input", []);
    Object.assign(shown, { value: key, readOnly: true, className: "ops-secret" });
    shown.setAttribute("aria-label", "The new key");
    shown.addEventListener("focus", () => shown.select());
    const copy = iconButton("copy", "Copy the key", (pressed) => copyText(key, pressed));
    const words = element("p", ["It is shown this once. Every server on this store takes it now."]);
    this.dialog(`The key ${name}`, [words, element("div", [shown, copy], "ops-tools")], "", null);
    shown.focus();
  }

  confirm(name) {
    const what = element("p", [`No server lets ${name} in any more. What it has used stays counted.`]);
    this.dialog(`Revoke ${name}?`, [what], "Revoke", async (_, close) => {
      await ask(`/keys/${encodeURIComponent(name)}`, { method: "DELETE" });
      close();
    });
  }

  dialog(title, children, label, send) {
    const heading = element("h2", [title]);
    heading.id = "ops-dialog-heading";
    const refused = make("p");
    refused.setAttribute("role", "alert");
    const close = button(send ? "Cancel" : "Close", () => dialog.close());
    const submit = element("button", [label], "primary");
    const form = element("form", [heading, ...children, refused, element("div", send ? [submit, close] : [close], "choices")]);
    const dialog = element("dialog", [form], "ops-dialog");
    dialog.setAttribute("aria-labelledby", heading.id);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        await send(form, () => dialog.close());
      } catch (error) {
        refused.textContent = wordsOf(error);
      }
      submit.disabled = false;
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      this.changed();
    });
    document.body.append(dialog);
    dialog.showModal();
  }
}

const limited = (words, used, limit, write) => meter(limit ? `${words} of ${write(limit)}` : words, used, limit);

/** Where a part has no price, at least so much. */
const spent = ({ usd, unpriced, tokens }) => (usd && unpriced ? `≥ ${money(usd)}` : money(tokens ? usd : 0));

function field(label, name, options) {
  const input = Object.assign(make("input"), { name, autocomplete: "off", ...options });
  return element("label", [label, input], "field");
}

function scope(name) {
  const box = Object.assign(make("input"), { type: "checkbox", name: "scopes", value: name, checked: name === "models" || name === "runs" });
  return element("label", [box, name], "check");
}
