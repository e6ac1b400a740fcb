"""The page's Markdown in tests: `whole` draws a text at once, `grown` as one that may go on; `shown` is a tree."""

DRAW = """
const { GrowingMarkdown, drawMarkdown } = await import("/web/answer/markdown/growing_markdown.js");
const shown = (node) => node.nodeType === 3 ? node.data
  : [node.tagName, Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value])),
    ...[...node.childNodes].map(shown)];
const whole = (text) => { const target = document.createElement("div"); drawMarkdown(target, text); return target; };
const grown = (text) => {
  const growing = new GrowingMarkdown(document.createElement("div"));
  growing.add(text);
  growing.draw();
  return growing.target;
};
"""
