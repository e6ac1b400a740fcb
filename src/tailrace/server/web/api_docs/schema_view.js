// A JSON schema to read: its fields with their types, and those of a field's own schema once it is unfolded.

import { element, fill } from "../answer/dom.js";

/** A text in which `words` are code. */
export const prose = (text) => text.split("`").map((part, at) => (at % 2 ? element("code", [part]) : part));

const nameOf = ({ $ref: ref }) => ref?.slice(ref.lastIndexOf("/") + 1) ?? "";

/** In a few words: `string or null`, `list of Usage`, `"a" or "b"`. */
export function typeOf(schema = {}) {
  if (schema.$ref) return nameOf(schema);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return [...new Set(choices.map(typeOf))].join(" or ");
  if (schema.type === "array") return schema.items && Object.keys(schema.items).length ? `list of ${typeOf(schema.items)}` : "list";
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "any");
  const { minimum, maximum, maxLength } = schema;
  const bounds = [minimum !== undefined && `from ${minimum}`, maximum !== undefined && `to ${maximum}`, maxLength && `up to ${maxLength} characters`];
  return [type, ...bounds.filter(Boolean)].join(" ");
}

export class SchemaView {
  /** `named`: the schemas of the document, by name. */
  constructor(named) {
    this.named = named;
  }

  resolved(schema) {
    return schema.$ref ? (this.named[nameOf(schema)] ?? {}) : schema;
  }

  /** The fields of an object; what any other schema is, in words. */
  draw(schema) {
    const known = this.resolved(schema);
    const about = known.description ? [element("p", prose(known.description), "soft")] : [];
    const fields = Object.entries(known.properties ?? {});
    if (!fields.length) return element("div", [...about, ...this.parts(known)], "schema");
    const required = new Set(known.required ?? []);
    const rows = fields.map(([name, field]) => this.field(name, field, required.has(name)));
    return element("div", [...about, element("ul", rows)], "schema");
  }

  field(name, schema, required) {
    const given = schema.default;
    const preset = given === undefined || given === null || given === "" ? "" : `, ${JSON.stringify(given)} unless given`;
    const line = [element("code", [name]), " ", element("span", [`${typeOf(schema)}${preset}`], "soft"), ...(required ? [element("span", [" required"], "required")] : [])];
    return element("li", [this.folded(line, this.inner(schema))]);
  }

  /** The schemas of this one that have fields: itself, its choices, what it lists. */
  inner(schema) {
    if (schema.$ref) return Object.keys(this.resolved(schema)).length ? [schema] : [];
    if (schema.properties) return [schema];
    const within = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), schema.items, schema.additionalProperties];
    return within.flatMap((each) => (each instanceof Object ? this.inner(each) : []));
  }

  parts(schema) {
    const inner = this.inner(schema);
    if (!inner.length) return [element("p", [typeOf(schema)])];
    return inner.map((each) => this.folded([element("span", [typeOf(each)])], [each]));
  }

  /** The line alone where there is nothing within it. */
  folded(line, inner) {
    if (!inner.length) return element("div", line);
    const place = element("div", []);
    const node = element("details", [element("summary", line), place]);
    node.addEventListener("toggle", () => {
      if (node.open && !place.childElementCount) fill(place, inner.map((each) => this.draw(each)));
    });
    return node;
  }
}
