// OpenAI's SDK: its tool loop, the Responses loop by hand, a background response that is resumed, and `parse`.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { base, key, question, report } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const schema = z.object({ city: z.string(), rain: z.boolean() });
const run = {
  get_weather: ({ city }) => `rain in ${city}`,
  get_time: ({ zone }) => JSON.stringify({ zone, time: "12:00" }),
};
const parameters = {
  get_weather: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  get_time: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"], additionalProperties: false },
};
const chatTools = Object.keys(run).map((name) => ({
  type: "function",
  function: { name, description: name, parameters: parameters[name], parse: JSON.parse, function: run[name] },
}));
const tools = Object.keys(run).map((name) => ({ type: "function", name, parameters: parameters[name], strict: true }));

const runTools = (stream) => async (model) => {
  const runner = client.chat.completions.runTools({
    model,
    messages: [{ role: "user", content: question }],
    tools: chatTools,
    max_completion_tokens: 2048,
    ...(stream && { stream, stream_options: { include_usage: true } }),
  });
  const text = await runner.finalContent();
  const calls = runner.messages.flatMap((message) => message.tool_calls ?? []).map((call) => call.function.name);
  return { calls, text, tokens: (await runner.totalUsage()).total_tokens };
};

// `input += response.output`, as OpenAI documents it: streamed, with reasoning, for two turns.
const loop = (options) => async (model) => {
  const input = [];
  const turns = [];
  for (const asked of [question, "And tomorrow?"]) {
    input.push({ role: "user", content: asked });
    const calls = [];
    for (let step = 0; step < 5; step++) {
      const stream = client.responses.stream({ model, input, tools, ...options });
      const response = await stream.finalResponse();
      input.push(...response.output.map(({ parsed_arguments: _, ...item }) => item));
      const wanted = response.output.filter((item) => item.type === "function_call");
      if (!wanted.length) {
        turns.push({ calls, text: response.output_text });
        break;
      }
      for (const call of wanted) {
        calls.push(call.name);
        const output = run[call.name](JSON.parse(call.arguments));
        input.push({ type: "function_call_output", call_id: call.call_id, output });
      }
    }
  }
  return turns;
};

// The same with the conversation kept by the server.
const chained = async (model) => {
  let response = await client.responses.create({ model, input: question, tools });
  const calls = [];
  while (response.output.some((item) => item.type === "function_call")) {
    const input = response.output
      .filter((item) => item.type === "function_call")
      .map((call) => {
        calls.push(call.name);
        return { type: "function_call_output", call_id: call.call_id, output: run[call.name](JSON.parse(call.arguments)) };
      });
    response = await client.responses.create({ model, input, tools, previous_response_id: response.id });
  }
  return { calls, text: response.output_text };
};

const background = async (model) => {
  const stream = await client.responses.create({ model, input: question, background: true, stream: true });
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === "response.output_text.delta") break;
  }
  const { id } = seen[0].response;
  const after = seen.at(-1).sequence_number;
  const rest = [];
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) rest.push(event);
  const whole = [];
  for await (const event of await client.responses.retrieve(id, { stream: true })) whole.push(event);
  const stored = await client.responses.retrieve(id);
  return {
    same: JSON.stringify([...seen, ...rest]) === JSON.stringify(whole),
    last: rest.at(-1).type,
    text: stored.output_text,
    status: stored.status,
  };
};

const parse = async (model) => {
  const chat = await client.chat.completions.parse({
    model,
    messages: [{ role: "user", content: question }],
    response_format: zodResponseFormat(schema, "report"),
  });
  const response = await client.responses.parse({
    model,
    input: question,
    text: { format: zodTextFormat(schema, "report") },
  });
  const streamed = await client.responses
    .stream({ model, input: question, text: { format: zodTextFormat(schema, "report") } })
    .finalResponse();
  return [chat.choices[0].message.parsed, response.output_parsed, streamed.output_parsed];
};

const encrypted = { store: false, include: ["reasoning.encrypted_content"] };
await report({
  "runTools": runTools(false),
  "runTools streamed": runTools(true),
  "loop": loop({}),
  "loop reasoning": loop({ reasoning: { effort: "low", summary: "auto" }, ...encrypted }),
  "chained": chained,
  "background": background,
  "parse": parse,
});
