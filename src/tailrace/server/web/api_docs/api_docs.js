// The HTTP API to read: `/docs`. Routes by group, each folded with its parameters, bodies and answers, from `/openapi.json`.

import { copyText } from "../answer/copy.js";
import { button, element, make } from "../answer/dom.js";
import { iconButton } from "../icons.js";
import { read, wordsOf } from "../net/api.js";
import { saveFile } from "../net/save_file.js";
import { frame } from "../operations/frame.js";
import { prose, SchemaView, typeOf } from "./schema_view.js";

const NOT_SHOWN = "page"; // the group of the page's own files
const TITLES = { v1: "Model APIs", "openapi.json": "Server" };
const SHORT = /^.{2,3}$|-/; // written in capitals
const SERVER = new Set(["healthz", "readyz", "metrics", "about", "ops", "usage"]);
const FIRST = ["Model APIs", "Runs", "Sessions"];
const METHODS = ["get", "head", "post", "put", "patch", "delete"];
const EXAMPLES = { string: "…", integer: 1, number: 1, boolean: true, object: {}, array: [] };

export async function openDocs() {
  await new ApiDocs().open();
}

class ApiDocs {
  constructor() {
    const { status, tools, body } = frame("docs");
    this.status = status;
    this.search = Object.assign(make("input"), { type: "search", placeholder: "Search routes", autocomplete: "off" });
    this.search.setAttribute("aria-label", "Search routes");
    this.search.addEventListener("input", () => this.filter());
    tools.append(this.search, button("openapi.json", () => this.save(), "ops-small"));
    body.classList.add("api-docs");
    this.nav = make("nav", "api-groups");
    this.nav.setAttribute("aria-label", "Groups of routes");
    this.list = make("div", "api-routes");
    body.append(this.nav, this.list);
  }

  async open() {
    try {
      this.document = await read("/openapi.json");
    } catch (error) {
      this.status.setAttribute("role", "alert");
      this.status.textContent = wordsOf(error);
      return;
    }
    this.schemas = new SchemaView(this.document.components.schemas);
    this.routes = routesOf(this.document).map((route) => ({ ...route, node: this.drawRoute(route) }));
    for (const [title, routes] of grouped(this.routes)) this.addGroup(title, routes);
    this.filter();
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }

  addGroup(title, routes) {
    const heading = element("h2", [title]);
    heading.id = `group-${title.toLowerCase().replace(/\W+/g, "-")}`;
    const link = element("a", [title, element("span", [String(routes.length)], "soft")]);
    link.href = `#${heading.id}`;
    this.nav.append(link);
    const group = element("section", [heading, ...routes.map(({ node }) => node)]);
    group.setAttribute("aria-labelledby", heading.id);
    this.list.append(group);
  }

  /** Shows the routes that have all these words. */
  filter() {
    if (!this.document) return;
    const words = this.search.value.toLowerCase().split(/\s+/);
    for (const { node, text } of this.routes ?? []) node.hidden = !words.every((word) => text.includes(word));
    for (const group of this.list.children) group.hidden = !group.querySelector("details.route:not([hidden])");
    const found = (this.routes ?? []).filter(({ node }) => !node.hidden).length;
    const { title, version } = this.document.info;
    this.status.textContent = `${found} ${found === 1 ? "route" : "routes"} · ${title} ${version} · ${location.origin}`;
  }

  save() {
    if (this.document) saveFile(JSON.stringify(this.document, null, 1), "openapi.json", "application/json");
  }

  /** One line; what is below it is drawn once it is opened. */
  drawRoute(route) {
    const { method, path, operation } = route;
    const mark = element("span", [method.toUpperCase()], "method");
    mark.dataset.method = method;
    const scope = operation["x-scope"] ?? (operation.security.length ? "any key" : "no key");
    const line = [mark, element("code", [path]), element("span", prose(operation.summary), "soft"), element("span", [scope], "scope")];
    const node = element("details", [element("summary", line)], "route");
    node.id = operation.operationId;
    node.addEventListener("toggle", () => node.open && node.children.length === 1 && node.append(this.drawOperation(route)));
    return node;
  }

  drawOperation({ method, path, operation }) {
    const body = operation.requestBody?.content["application/json"]?.schema;
    const command = this.command(method, path, operation, body);
    const example = element("div", [element("pre", [command]), iconButton("copy", "Copy", (pressed) => copyText(command, pressed))], "example");
    const answers = Object.entries(operation.responses).map(([status, answer]) => this.drawAnswer(status, answer));
    return element(
      "div",
      [
        element("p", prose(operation.summary)),
        example,
        ...(operation.parameters.length ? [element("h3", ["Parameters"]), parameters(operation.parameters)] : []),
        ...(body ? [element("h3", ["Body"]), this.schemas.draw(body)] : []),
        element("h3", ["Answers"]),
        ...answers,
      ],
      "operation",
    );
  }

  drawAnswer(status, { description, content = {} }) {
    const [media, kind] = Object.entries(content)[0] ?? ["", null];
    const streams = "text/event-stream" in content && media !== "text/event-stream" ? ", or server-sent events" : "";
    const words = status < 400 ? `${media || "nothing"}${streams}` : description;
    const line = [element("span", [status], status < 400 ? "answer-status" : "answer-status failed"), " ", words];
    if (!kind || kind.schema.type === "string") return element("p", line, "api-answer");
    const node = element("details", [element("summary", line)], "api-answer");
    node.addEventListener("toggle", () => node.open && node.children.length === 1 && node.append(this.schemas.draw(kind.schema)));
    return node;
  }

  /** How a shell asks for it. */
  command(method, path, operation, body) {
    const lines = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}'${location.origin}${path}'`];
    if (operation.security.length) lines.push('-H "Authorization: Bearer $TAILRACE_API_KEY"');
    if (body) lines.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(this.example(body))}'`);
    return lines.join(" \\\n  ");
  }

  /** What a body has at least. */
  example(schema, depth = 0) {
    const known = this.schemas.resolved(schema);
    if (known.default !== undefined) return known.default;
    if (known.const !== undefined || known.enum) return known.const ?? known.enum[0];
    const choice = known.anyOf ?? known.oneOf;
    if (choice) return this.example(choice.find(({ type }) => type === "string") ?? choice[0], depth);
    if (!known.properties || depth > 3) return known.minItems ? [this.example(known.items ?? {}, depth + 1)] : (EXAMPLES[known.type] ?? "…");
    const names = known.required ?? [];
    return Object.fromEntries(names.map((name) => [name, this.example(known.properties[name] ?? {}, depth + 1)]));
  }
}

function parameters(given) {
  const rows = given.map(({ name, in: where, required, schema, description = "" }) =>
    element("tr", [
      element("th", [element("code", [name])]),
      element("td", [`${where}${required ? ", required" : ""}`]),
      element("td", [typeOf(schema), ...(description ? [element("span", [` ${description}`], "soft")] : [])]),
    ]),
  );
  for (const row of rows) row.firstChild.scope = "row";
  return element("div", [element("table", [element("tbody", rows)])], "api-parameters");
}

/** Every route but the page's own files. */
function routesOf({ paths }) {
  return Object.entries(paths).flatMap(([path, operations]) =>
    METHODS.filter((method) => operations[method] && operations[method].tags[0] !== NOT_SHOWN).map((method) => {
      const operation = operations[method];
      return { method, path, operation, text: `${method} ${path} ${operation.summary}`.toLowerCase() };
    }),
  );
}

function titleOf(tag) {
  if (SERVER.has(tag)) return "Server";
  return TITLES[tag] ?? (SHORT.test(tag) ? tag.toUpperCase() : tag[0].toUpperCase() + tag.slice(1));
}

/** [title, routes] in order: what most people look for first, the server last. */
function grouped(routes) {
  const groups = new Map(FIRST.map((title) => [title, []]));
  for (const route of routes) {
    const title = titleOf(route.operation.tags[0]);
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(route);
  }
  const last = groups.get("Server") ?? [];
  groups.delete("Server");
  groups.set("Server", last);
  return [...groups].filter(([, own]) => own.length);
}
