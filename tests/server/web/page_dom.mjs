// As much of a browser's document as the page uses, so that its own scripts can run without one.

export class Node {
  static made = 0;
  constructor(tag) {
    Node.made += 1;
    this.tagName = tag.toUpperCase();
    this.childNodes = [];
    this.attributes = {};
    this.dataset = {};
    this.listeners = {};
    this.className = "";
    this.classList = { toggle() {} };
    this.value = "";
    this.parent = null;
    this.scrollHeight = this.scrollTop = this.clientHeight = 0;
  }
  append(...nodes) {
    for (const node of nodes) {
      if (typeof node === "object") {
        node.remove?.();
        node.parent = this;
      }
      this.childNodes.push(node);
    }
  }
  remove() {
    if (this.parent) this.parent.childNodes = this.parent.childNodes.filter((node) => node !== this);
    this.parent = null;
  }
  before(node) {
    const parent = this.parent;
    if (typeof node === "object") {
      node.remove?.();
      node.parent = parent;
    }
    parent.childNodes.splice(parent.childNodes.indexOf(this), 0, node);
  }
  get lastChild() {
    return this.childNodes.at(-1);
  }
  replaceChildren(...nodes) {
    this.childNodes = [];
    this.append(...nodes);
  }
  replaceWith(node) {
    this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1, node);
    node.parent = this.parent;
  }
  querySelector(selector) {
    const inside = this.childNodes.filter((node) => node instanceof Node);
    const found = inside.find((node) => node.className === selector.slice(1));
    return found ?? inside.map((node) => node.querySelector(selector)).find(Boolean) ?? null;
  }
  all() {
    return [this, ...this.childNodes.filter((node) => node instanceof Node).flatMap((node) => node.all())];
  }
  get textContent() {
    return this.childNodes.map((node) => (node instanceof Node ? node.textContent : node)).join("");
  }
  set textContent(text) {
    this.childNodes = text === "" ? [] : [text];
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  addEventListener(name, listener) {
    (this.listeners[name] ??= []).push(listener);
  }
  dispatch(name, event = {}) {
    for (const listener of this.listeners[name] ?? []) listener({ preventDefault() {}, ...event });
  }
  focus() {}
  showModal() {
    this.shown = true;
  }
  set innerHTML(_) {
    throw new Error("model text must never be parsed as HTML");
  }
}

const ids = new Map();
globalThis.document = {
  hidden: false,
  addEventListener() {},
  createElement: (tag) => new Node(tag),
  getElementById: (id) => {
    if (!ids.has(id)) ids.set(id, new Node("div"));
    return ids.get(id);
  },
};
globalThis.requestAnimationFrame = (draw) => setTimeout(draw, 0);
