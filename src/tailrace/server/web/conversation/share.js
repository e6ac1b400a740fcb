// A conversation as a file that anyone can read: what is shown, with its styles, and nothing that runs.

import { saveFile } from "../net/save_file.js";

const STYLES = ["variables", "base", "conversation", "answer", "approvals"];
const NOT_SHARED = "button, form, svg, [hidden], .activity, .next-messages, .actions, .versions, .earlier-runs";
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

export async function shareConversation(log, title) {
  const styles = await Promise.all(STYLES.map(async (name) => (await fetch(`/web/style/${name}.css`)).text()));
  const shared = document.implementation.createHTMLDocument(title);
  const policy = shared.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = POLICY;
  const width = shared.createElement("meta");
  Object.assign(width, { name: "viewport", content: "width=device-width, initial-scale=1" });
  const style = shared.createElement("style");
  style.textContent = styles.join("\n");
  const charset = shared.createElement("meta");
  charset.setAttribute("charset", "utf-8");
  shared.head.prepend(charset, policy, width);
  shared.head.append(style);
  const name = shared.createElement("h1");
  name.textContent = title;
  const said = shared.importNode(log, true);
  for (const node of said.querySelectorAll(NOT_SHARED)) node.remove();
  for (const node of said.querySelectorAll("[href^='/']")) node.removeAttribute("href");
  shared.body.className = "shared";
  shared.body.append(name, ...said.childNodes);
  saveFile(`<!doctype html>\n${shared.documentElement.outerHTML}`, `${fileName(title)}.html`, "text/html");
}

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";
