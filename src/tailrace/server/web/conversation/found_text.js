// Marks what was searched for in the conversation, without changing its nodes.

const NAME = "found";

export function markFound(root, query) {
  CSS.highlights?.delete(NAME);
  if (!query || !CSS.highlights) return;
  const ranges = [];
  const wanted = query.toLowerCase();
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set(NAME, new Highlight(...ranges));
}
