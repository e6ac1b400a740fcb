// What the operator's views and the API's have in common: the bar above them, the heading with a line that says how things stand.

import { element, link, make } from "../answer/dom.js";
import { startInbox } from "../approvals/inbox.js";
import { icon } from "../icons.js";

const VIEWS = { ops: "Operations", runs: "Runs", usage: "Usage", docs: "API" };

/** The view's `main` with its bar; `view` is its name in the address. */
export function frame(view) {
  const home = element("a", [icon("wave"), element("span", ["Tailrace"])], "ops-home");
  home.href = "/";
  home.setAttribute("aria-label", "Tailrace");
  const links = Object.entries(VIEWS).map(([name, title]) => {
    const way = link(title, name === "docs" ? "/docs" : `/?${name}`);
    if (name === view) way.setAttribute("aria-current", "page");
    return way;
  });
  const bar = element("nav", [home, ...links], "ops-bar");
  bar.setAttribute("aria-label", "Tailrace");
  const heading = element("h1", [VIEWS[view]]);
  const status = make("p", "ops-status");
  status.setAttribute("role", "status");
  const tools = make("div", "ops-tools");
  const body = make("div", "ops-body");
  const root = element("main", [bar, element("header", [element("div", [heading, status]), tools], "ops-head"), body], "view");
  document.body.dataset.view = view;
  document.title = `${VIEWS[view]} · Tailrace`;
  document.body.append(root);
  startInbox(bar);
  return { root, bar, status, tools, body };
}

/** A part of the page with its own heading. */
export function section(title, children, { wide = false, tools = [] } = {}) {
  const heading = element("h2", [title]);
  const node = element("section", [element("div", [heading, ...tools], "ops-section-head"), ...children], wide ? "ops-card ops-wide" : "ops-card");
  heading.id = `ops-${title.toLowerCase().replace(/\W+/g, "-")}`;
  node.setAttribute("aria-labelledby", heading.id);
  return node;
}

/** How much of a limit is used: the figure, and a bar where there is a limit. */
export function meter(words, used, limit) {
  const node = element("div", [element("span", [words])], "ops-meter");
  node.dataset.state = `${words} ${limit}`;
  if (!limit) return node;
  const share = Math.min(1, (used ?? 0) / limit);
  const bar = make("span", "ops-bar-track");
  const fill = make("span", "ops-bar-fill");
  fill.style.width = `${Math.round(share * 1000) / 10}%`;
  if (share >= 1) fill.dataset.tone = "bad";
  else if (share >= 0.8) fill.dataset.tone = "warn";
  bar.append(fill);
  node.append(bar);
  return node;
}
