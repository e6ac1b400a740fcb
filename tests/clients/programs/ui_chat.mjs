// A page's script without a page: `useChat`'s own `Chat` and transport, driven line by line from a test.
// A line in is {"script", "url", ...}: the body of an async function. A line out is {"value"} or {"error"}.
import { createInterface } from "node:readline";
import * as ai from "ai";
import { Chat } from "@ai-sdk/react";

const AsyncFunction = (async () => {}).constructor;
const LONGEST_MS = 30_000;
const chats = new Map(); // by name: a script may go on with the chat of another

// What `useChat({ id, transport: new DefaultChatTransport({ api }) })` makes, and every chunk that it reads.
function newChat(url, { name = "chat", id, transport = {}, ...options } = {}) {
  const chunks = [];
  const errors = [];
  const data = [];
  class Recorded extends ai.DefaultChatTransport {
    processResponseStream(stream) {
      const note = new TransformStream({ transform: (chunk, out) => (chunks.push(chunk), out.enqueue(chunk)) });
      return super.processResponseStream(stream).pipeThrough(note);
    }
  }
  const chat = new Chat({
    id,
    transport: new Recorded({ api: `${url}/ui/chat`, ...transport }),
    onError: (error) => errors.push(error.message),
    onData: (part) => data.push(part),
    ...options,
  });
  Object.assign(chat, { chunks, errors, data });
  chats.set(name, chat);
  return chat;
}

// Resolves once the chat satisfies the condition: looked at again after each change of its messages or its status.
function until(chat, condition) {
  return new Promise((resolve) => {
    const look = () => condition(chat) && resolve(chat);
    chat["~registerMessagesCallback"](look);
    chat["~registerStatusCallback"](look);
    look();
  });
}

const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("|");

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("nothing happens")), LONGEST_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

for await (const line of createInterface({ input: process.stdin })) {
  const { script, url, ...given } = JSON.parse(line);
  const scope = { ai, chats, url, given, until, textOf, newChat: (options) => newChat(url, options) };
  const run = new AsyncFunction(...Object.keys(scope), script);
  const said = await within(run(...Object.values(scope))).then(
    (value) => ({ value: value ?? null }),
    (error) => ({ error: String(error?.stack ?? error) }),
  );
  console.log(JSON.stringify(said));
}
