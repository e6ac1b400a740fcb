// A page's script without a page: AG-UI's own client with its schemas and its verifier, driven line by line from a
// test. A line in is {"script", "url", ...}: the body of an async function. A line out is {"value"} or {"error"}.
import { createInterface } from "node:readline";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const AsyncFunction = (async () => {}).constructor;
const LONGEST_MS = 60_000;
const agents = new Map(); // by name: a script may go on with the agent of another
const complaints = []; // what the client warns of: fields that it does not know, events that it cannot apply
for (const level of ["warn", "error"]) console[level] = (...words) => complaints.push(words.map(String).join(" "));
// The client rethrows the failure of a connection once more, where nobody can catch it.
process.on("unhandledRejection", (error) => {
  if (error?.message !== "terminated") throw error;
});

function newAgent(url, { name = "agent", ...options } = {}) {
  const agent = new HttpAgent({ url: `${url}/ag-ui`, ...options });
  agent.seen = [];
  agent.waiting = [];
  agent.subscribe({
    onEvent: ({ event }) => {
      agent.seen.push(event);
      agent.waiting = agent.waiting.filter(({ condition, resolve }) => !condition(event) || resolve(event));
    },
  });
  // Resolves with the first event that satisfies the condition.
  agent.event = (condition) => new Promise((resolve) => agent.waiting.push({ condition, resolve }));
  agent.say = (text, parameters) => {
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
    return agent.runAgent(parameters);
  };
  agent.durableRun = () => agent.seen.findLast((event) => event.type === "RUN_STARTED").metadata.tailrace.runId;
  agent.said = () => agent.messages.map(({ role, content, toolCalls }) => [role, content ?? "", toolCalls?.length ?? 0]);
  agents.set(name, agent);
  return agent;
}

const post = (url, body) =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("nothing happens")), LONGEST_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

for await (const line of createInterface({ input: process.stdin })) {
  const { script, url, ...given } = JSON.parse(line);
  complaints.length = 0;
  const scope = { agents, url, given, post, complaints, buildResumeArray, newAgent: (options) => newAgent(url, options) };
  const run = new AsyncFunction(...Object.keys(scope), script);
  const said = await within(run(...Object.values(scope))).then(
    (value) => ({ value: value ?? null }),
    (error) => ({ error: `${error?.stack ?? error}\n${complaints.join("\n")}` }),
  );
  console.log(JSON.stringify(said));
}
