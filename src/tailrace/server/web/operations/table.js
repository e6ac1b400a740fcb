// A table that is drawn again with every answer of the server: a row keeps its nodes, and with them the focus and what
// is selected, and a cell is drawn anew only where it has changed.

import { element, make } from "../answer/dom.js";

export class Table {
  /**
   * `columns`: {title, of(row)}; `of` gives a text or a node, whose `dataset.state` says what it was made from. `numeric`
   * stands at the right, `grow` takes the room that is left, `less` is left out on a narrow screen, `sort` is what the
   * server sorts by. `id(row)` tells rows apart.
   */
  constructor(caption, columns, id, { none = "None.", sorted = null } = {}) {
    Object.assign(this, { columns, id, none });
    this.rows = new Map();
    this.body = make("tbody");
    this.heads = columns.map((column) => this.head(column, sorted));
    const title = element("caption", [caption], "unseen");
    this.table = element("table", [title, element("thead", [element("tr", this.heads)]), this.body]);
    this.empty = element("p", [none], "ops-none");
    this.node = element("div", [this.table, this.empty], "ops-table");
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "group"); // no landmark: the card around it is one
    this.node.setAttribute("aria-label", caption);
    this.update([]);
  }

  head({ title, sort, ...flags }, sorted) {
    const head = make("th", classes(flags));
    head.scope = "col";
    if (!sort || !sorted) {
      head.append(title);
      return head;
    }
    const press = element("button", [title], "quiet");
    press.type = "button";
    press.addEventListener("click", () => sorted(sort));
    head.dataset.sort = sort;
    head.append(press);
    return head;
  }

  /** Marks the column by which the rows stand. */
  mark(sort) {
    for (const head of this.heads) {
      if (head.dataset.sort === sort) head.setAttribute("aria-sort", "descending");
      else head.removeAttribute("aria-sort");
    }
  }

  update(items) {
    const kept = new Map();
    items.forEach((item, index) => {
      const id = this.id(item);
      const row = this.rows.get(id) ?? this.row();
      row.cells.forEach((cell, place) => this.write(cell, this.columns[place].of(item)));
      if (this.body.children[index] !== row.node) this.body.insertBefore(row.node, this.body.children[index] ?? null);
      kept.set(id, row);
    });
    for (const [id, row] of this.rows) if (!kept.has(id)) row.node.remove();
    this.rows = kept;
    this.table.hidden = !kept.size;
    this.empty.hidden = kept.size > 0;
  }

  row() {
    const cells = this.columns.map((column) => make("td", classes(column)));
    return { node: element("tr", cells), cells };
  }

  write(cell, content) {
    const state = content instanceof Node ? (content.dataset.state ?? content.textContent) : String(content);
    if (cell.dataset.state === state) return;
    cell.dataset.state = state;
    cell.replaceChildren(content);
  }
}

const classes = (column) => ["numeric", "grow", "less"].filter((name) => column[name]).join(" ");

/** A word with the colour of what it says. */
export function tag(word, tone) {
  const node = element("span", [word], "ops-tag");
  if (tone) node.dataset.tone = tone;
  node.dataset.state = `${word} ${tone}`;
  return node;
}

/** Text that is cut at the end of its cell; whole under the pointer. */
export function cut(text, href = "") {
  const node = element(href ? "a" : "span", [text], "ops-cut");
  if (href) node.href = href;
  node.title = text;
  node.dataset.state = `${text} ${href}`;
  return node;
}
