// The only way from HTML to nodes: DOMPurify, with no more tags and attributes than an answer needs (J123).

import { createPurifier } from "../../vendor/dompurify.js";

const TEXT = {
  ALLOWED_TAGS: ["a", "b", "br", "code", "del", "em", "i", "s", "span", "strong"],
  ALLOWED_ATTR: ["class", "data-display", "href", "rel", "target"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["rel", "target"],
  ALLOW_ARIA_ATTR: false,
};
const FORMULA = {
  USE_PROFILES: { mathMl: true },
  ADD_TAGS: ["span", "semantics", "annotation"],
  FORBID_ATTR: ["style", "href", "xlink:href"],
};

/** A fragment of nodes. `formula`: the HTML is KaTeX's. */
export function purified(html, { formula = false } = {}) {
  const rules = formula ? FORMULA : TEXT;
  return createPurifier.sanitize(html, { ...rules, RETURN_DOM_FRAGMENT: true });
}
