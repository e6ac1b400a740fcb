// Nodes and text: the only way in which anything here reaches the document (J123).

export function make(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}

export function element(tag, children, name = "") {
  const made = make(tag, name);
  for (const child of children) made.append(child); // one by one: a call takes only so many arguments
  return made;
}

/** Puts these in place of what a node has. */
export function fill(target, children) {
  target.replaceChildren();
  for (const child of children) target.append(child);
}

export function link(label, address, name = "") {
  const made = element("a", [label], name);
  made.href = address;
  return made;
}

export function button(label, action, name = "") {
  const made = element("button", [label], name);
  made.type = "button";
  made.addEventListener("click", () => action(made));
  return made;
}
