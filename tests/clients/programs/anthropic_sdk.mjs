// Anthropic's SDK: its tool runner, the stream helper with thinking for two turns by hand, parsing, counting.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { base, key, question, report } from "./harness.mjs";

const client = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const schema = z.object({ city: z.string(), rain: z.boolean() });
const run = {
  get_weather: ({ city }) => `rain in ${city}`,
  get_time: ({ zone }) => JSON.stringify({ zone, time: "12:00" }),
};
const tools = [
  { name: "get_weather", description: "The weather.", input_schema: { type: "object", properties: { city: { type: "string" } } } },
  { name: "get_time", description: "The time.", input_schema: { type: "object", properties: { zone: { type: "string" } } } },
];
const runnable = [
  betaZodTool({ name: "get_weather", description: "The weather.", inputSchema: z.object({ city: z.string() }), run: run.get_weather }),
  betaZodTool({ name: "get_time", description: "The time.", inputSchema: z.object({ zone: z.string() }), run: run.get_time }),
];
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const callsOf = (message) => message.content.filter((block) => block.type === "tool_use").map((block) => block.name);

const toolRunner = (stream) => async (model) => {
  const runner = client.beta.messages.toolRunner({
    model,
    max_tokens: 4096,
    messages: [{ role: "user", content: question }],
    tools: runnable,
    ...(stream && { stream, thinking: { type: "enabled", budget_tokens: 2048 } }),
  });
  const messages = [];
  for await (const step of runner) messages.push(stream ? await step.finalMessage() : step);
  return { calls: messages.flatMap(callsOf), text: textOf(messages.at(-1)), stop: messages.at(-1).stop_reason };
};

const thinking = async (model) => {
  const messages = [];
  const turns = [];
  for (const asked of [question, "And tomorrow?"]) {
    messages.push({ role: "user", content: asked });
    const calls = [];
    const thoughts = [];
    for (let step = 0; step < 5; step++) {
      const stream = client.messages.stream({
        model,
        max_tokens: 4096,
        messages,
        tools,
        thinking: { type: "enabled", budget_tokens: 2048 },
      });
      stream.on("thinking", (delta) => thoughts.push(delta));
      const message = await stream.finalMessage();
      messages.push({ role: "assistant", content: message.content });
      if (message.stop_reason !== "tool_use") {
        turns.push({ calls, thoughts: thoughts.join(""), text: textOf(message) });
        break;
      }
      calls.push(...callsOf(message));
      const results = message.content
        .filter((block) => block.type === "tool_use")
        .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: run[block.name](block.input) }));
      messages.push({ role: "user", content: results });
    }
  }
  return turns;
};

const parse = async (model) => {
  const asked = { model, max_tokens: 1024, messages: [{ role: "user", content: question }] };
  const message = await client.messages.parse({ ...asked, output_config: { format: zodOutputFormat(schema) } });
  const stream = client.messages.stream({ ...asked, output_config: { format: zodOutputFormat(schema) } });
  return [message.parsed_output, (await stream.finalMessage()).parsed_output];
};

const count = async (model) => {
  const { input_tokens } = await client.messages.countTokens({ model, messages: [{ role: "user", content: question }], tools });
  return { counted: input_tokens > 0 };
};

await report({
  "toolRunner": toolRunner(false),
  "toolRunner streamed": toolRunner(true),
  "thinking": thinking,
  "parse": parse,
  "count": count,
});
