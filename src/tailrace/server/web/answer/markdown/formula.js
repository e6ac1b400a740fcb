// Formulas: KaTeX is loaded when the first one comes, and writes MathML, which needs no style and no font of its own.

import { purified } from "./purified.js";

const KATEX = "/web/vendor/katex.js";
let loading = null;

/** Shows each formula in `node` that stands there as it was written. One that KaTeX cannot read stays so. */
export async function showFormulas(node) {
  const found = [...node.querySelectorAll(".math[data-display]")];
  if (node.matches(".math[data-display]")) found.push(node);
  if (!found.length) return;
  try {
    const katex = await (loading ??= loadKatex());
    for (const formula of found) showOne(katex, formula);
  } catch {
    loading = null; // the next formula tries again
  }
}

function showOne(katex, formula) {
  const displayMode = formula.dataset.display === "true";
  if (formula.firstElementChild) return;
  try {
    const html = katex.renderToString(formula.textContent, { displayMode, output: "mathml", maxExpand: 100, maxSize: 20 });
    formula.replaceChildren(purified(html, { formula: true }));
    formula.classList.add("typeset");
  } catch (error) {
    if (!(error instanceof katex.ParseError)) throw error;
  }
}

function loadKatex() {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = KATEX;
    script.addEventListener("load", () => resolve(globalThis.katex));
    script.addEventListener("error", () => reject(new Error("KaTeX cannot be loaded")));
    document.head.append(script);
  });
}
