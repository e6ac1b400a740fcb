// An editor made with the TypeScript SDK: starts the agent as an editor does, and prints one JSON line with what it saw.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const { AGENT, PROJECT } = process.env;
const [command, ...args] = JSON.parse(AGENT);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"], cwd: PROJECT });
const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const { session } = methods.agent;

const updates = [];
let waiting = () => {};
let answer = "once";
let questions = 0;

function text(sessionId, kind = "agent_message_chunk") {
  const chunks = updates.filter((one) => one.sessionId === sessionId && one.update.sessionUpdate === kind);
  return chunks.map((one) => one.update.content.text ?? "").join("");
}

function calls(sessionId) {
  const shown = new Map();
  for (const { sessionId: of, update } of updates) {
    if (of === sessionId && update.toolCallId) shown.set(update.toolCallId, { ...shown.get(update.toolCallId), ...update });
  }
  return [...shown.values()].map(({ title, kind, status }) => ({ title, kind, status }));
}

async function until(said) {
  while (!said()) await new Promise((resolve) => (waiting = resolve));
}

const editor = client({ name: "tests" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params);
    waiting();
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    questions += 1;
    const option = params.options.find((one) => one.optionId === answer);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const shown = await editor.connectWith(stream, async (agent) => {
  const hello = await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  const open = async (model) => {
    const { sessionId } = await agent.request(session.new, { cwd: PROJECT, mcpServers: [] });
    await agent.request(session.setConfigOption, { sessionId, configId: "model", value: `test/${model}` });
    return sessionId;
  };
  const prompt = (sessionId) => agent.request(session.prompt, { sessionId, prompt: [{ type: "text", text: "Go on." }] });
  const turn = async (model) => {
    const sessionId = await open(model);
    const { stopReason } = await prompt(sessionId);
    return { stopReason, text: text(sessionId), calls: calls(sessionId), sessionId };
  };

  const reads = await turn("reads");
  const again = await prompt(reads.sessionId);
  updates.length = 0;
  await agent.request(session.load, { sessionId: reads.sessionId, cwd: PROJECT, mcpServers: [] });
  const loaded = { text: text(reads.sessionId), asked: text(reads.sessionId, "user_message_chunk") };
  const allowed = await turn("removes");
  answer = "deny";
  const rejected = await turn("removes");
  const long = await open("long+stall@50%");
  const running = prompt(long);
  await until(() => text(long).includes("word20 "));
  await agent.notify(session.cancel, { sessionId: long });
  const cancelled = (await running).stopReason;
  const failed = await turn("status-401").catch((error) => ({ code: error.code }));
  const version = hello.protocolVersion;
  return { version, reads, again: again.stopReason, loaded, allowed, rejected, questions, cancelled, failed };
});
for (const one of [shown.reads, shown.allowed, shown.rejected]) delete one.sessionId;
child.stdin.end();
shown.exit = await new Promise((resolve) => (child.exitCode === null ? child.on("exit", resolve) : resolve(child.exitCode)));
console.log(JSON.stringify(shown));
