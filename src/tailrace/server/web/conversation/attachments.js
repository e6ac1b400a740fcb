// What is sent beside a message: images as they are, text files as text. Chosen, dropped or pasted.

import { element, make } from "../answer/dom.js";
import { iconButton } from "../icons.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const MAX_FILES = 10;
const MAX_TEXT_BYTES = 1_000_000;
const BODY_SHARE = 0.9; // of the largest request, for what is attached; the rest is the message's

export class Attachments {
  /** `say(words)` tells what was refused and why; `changed()` is called when files come or go. */
  constructor(list, say, changed = () => {}) {
    Object.assign(this, { list, say, changed });
    this.items = []; // {name, part, size}
    this.maxBytes = 0; // of all together; 0 where it is not known yet
  }

  set maxBodyBytes(bytes) {
    this.maxBytes = Math.floor(bytes * BODY_SHARE);
  }

  get parts() {
    return this.items.map(({ part }) => part);
  }

  get names() {
    return this.items.map(({ name }) => name);
  }

  async add(files) {
    const refused = [];
    for (const file of files) {
      const reason = await this.addOne(file);
      if (reason) refused.push(`${file.name || "The file"}: ${reason}.`);
    }
    this.say(refused.join(" "));
    this.draw();
  }

  /** Why the file cannot be attached, where it cannot. */
  async addOne(file) {
    if (this.items.length >= MAX_FILES) return `at most ${MAX_FILES} files in one message`;
    const image = IMAGES.has(file.type);
    if (!image && file.size > MAX_TEXT_BYTES) return `a text file may have ${inWords(MAX_TEXT_BYTES)}`;
    const size = image ? Math.ceil(file.size / 3) * 4 : file.size;
    const used = this.items.reduce((sum, item) => sum + item.size, 0);
    if (this.maxBytes && used + size > this.maxBytes) return `all files together may have ${inWords(this.maxBytes)}`;
    const part = image ? await imagePart(file) : await textPart(file);
    if (!part) return "only images (PNG, JPEG, WebP, GIF) and text in UTF-8 can be attached";
    this.items.push({ name: file.name || "image", part, size });
    return "";
  }

  clear() {
    this.items = [];
    this.draw();
  }

  draw() {
    this.changed();
    this.list.hidden = this.items.length === 0;
    this.list.replaceChildren(...this.items.map((item) => this.chip(item)));
  }

  chip(item) {
    const chip = make("li", "chip");
    if (item.part.image_url) {
      const picture = make("img");
      picture.src = item.part.image_url.url;
      picture.alt = "";
      chip.append(picture);
    }
    const remove = iconButton("x", `Remove ${item.name}`, () => {
      this.items = this.items.filter((other) => other !== item);
      this.draw();
      document.getElementById("message").focus();
    });
    chip.append(element("span", [item.name]), remove);
    return chip;
  }
}

function imagePart(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve({ type: "image_url", image_url: { url: reader.result } }));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

/** null where the file is not text. */
async function textPart(file) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return null;
  }
  if (text.includes("\0")) return null;
  const name = (file.name || "text").replace(/["\n]/g, "'");
  return { type: "text", text: `\n\n<file name="${name}">\n${text}\n</file>` };
}

function inWords(bytes) {
  return bytes >= 1_000_000 ? `${Math.floor(bytes / 1_000_000)} MB at most` : `${Math.floor(bytes / 1000)} kB at most`;
}
