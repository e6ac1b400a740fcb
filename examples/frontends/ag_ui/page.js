import { HttpAgent } from "@ag-ui/client";

const server = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8642";
location.hash ||= crypto.randomUUID(); // the address keeps the thread, the server its messages
const agent = new HttpAgent({ url: `${server}/ag-ui`, threadId: location.hash.slice(1) });
const [messages, approvals, error, form, text, stop] = ["messages", "approvals", "error", "form", "text", "stop"].map(
  (id) => document.getElementById(id),
);
let durableRun = ""; // what POST /runs/{id}/stop takes

function element(tag, textContent, more = {}) {
  return Object.assign(document.createElement(tag), { textContent, ...more });
}

function show() {
  const shown = agent.messages.map(({ role, content, toolCalls = [] }) => {
    const calls = toolCalls.map(({ function: { name, arguments: input } }) => `${name} ${input}`);
    return element("pre", [content, ...calls].filter(Boolean).join("\n"), { className: role, style: "white-space: pre-wrap" });
  });
  messages.replaceChildren(...shown);
}

function ask({ id, message }) {
  const answer = (approved) => () => run({ resume: [{ interruptId: id, status: "resolved", payload: { approved } }] });
  const buttons = { Approve: true, Deny: false };
  return [message, ...Object.entries(buttons).map(([name, yes]) => element("button", name, { onclick: answer(yes) }))];
}

async function run(parameters = {}) {
  const runId = crypto.randomUUID();
  document.body.dataset.status = "running";
  error.textContent = "";
  approvals.replaceChildren();
  for (let lost = true; lost; ) {
    try {
      await agent.runAgent({ ...parameters, runId });
      lost = false;
    } catch (problem) {
      lost = problem.status === undefined; // the connection: the same runId goes on where the run is by now
      error.textContent = lost
        ? `no connection to ${server}: is it running, and is ${location.origin} in its server.cors_origins?`
        : (problem.payload?.error?.message ?? problem.message);
      if (lost) await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  approvals.replaceChildren(...agent.pendingInterrupts.flatMap(ask));
  document.body.dataset.status = "ready";
}

agent.subscribe({
  onMessagesChanged: show,
  onRunStartedEvent: ({ event }) => {
    durableRun = event.metadata?.tailrace.runId;
    error.textContent = "";
  },
  onRunErrorEvent: ({ event }) => void (error.textContent = event.message),
});
stop.onclick = () => fetch(`${server}/runs/${durableRun}/stop`, { method: "POST" });
form.onsubmit = (event) => {
  event.preventDefault();
  if (document.body.dataset.status !== "ready") return;
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text.value });
  text.value = "";
  run();
};
run(); // without messages: opens the thread
