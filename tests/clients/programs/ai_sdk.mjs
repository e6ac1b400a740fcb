// The Vercel AI SDK: two tool steps, a second turn, and objects, through each of its providers.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { base, key, models, question, report } from "./harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({ baseURL: `${base}/v1`, apiKey: key });
const anthropic = createAnthropic({ baseURL: `${base}/v1`, apiKey: key });
const compatible = createOpenAICompatible({
  name: "tailrace",
  baseURL: `${base}/v1`,
  apiKey: key,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `rain in ${city}`,
  }),
  get_time: tool({
    description: "The time in a zone.",
    inputSchema: z.object({ zone: z.string() }),
    execute: async ({ zone }) => ({ zone, time: "12:00" }),
  }),
};
const schema = z.object({ city: z.string(), rain: z.boolean() });

async function turn(model, messages, options) {
  let failure;
  const streamed = streamText({
    model,
    messages,
    tools,
    stopWhen: stepCountIs(5),
    maxRetries: 0,
    onError: ({ error }) => (failure ??= error),
    ...options,
  });
  await streamed.consumeStream({ onError: () => {} });
  if (failure) throw failure;
  const steps = await streamed.steps;
  return {
    calls: steps.flatMap((step) => step.toolCalls.map((call) => call.toolName)),
    reasoning: steps.map((step) => step.reasoningText ?? ""),
    text: await streamed.text,
    finish: await streamed.finishReason,
    tokens: (await streamed.totalUsage).totalTokens,
    messages: [...messages, ...(await streamed.response).messages],
  };
}

const twoTurns = (model, options) => async (name) => {
  const first = await turn(model(name), [{ role: "user", content: question }], options);
  const second = await turn(model(name), [...first.messages, { role: "user", content: "And tomorrow?" }], options);
  delete first.messages;
  delete second.messages;
  return [first, second];
};

// Another model goes on: with the second turn, and with every step of a turn.
const others = (name) => [0, 1, 2, 3].map((at) => models[(models.indexOf(name) + at) % models.length]);
const switched = (model, options) => async (name) => {
  const messages = [{ role: "user", content: question }];
  const told = [];
  for (const other of others(name)) {
    const { calls, text, messages: all } = await turn(model(other), messages.slice(), options);
    told.push({ calls, text });
    messages.splice(0, messages.length, ...all, { role: "user", content: "And tomorrow?" });
  }
  const prepareStep = ({ stepNumber }) => ({ model: model(others(name)[stepNumber]) });
  const { calls, text } = await turn(model(name), messages, { ...options, prepareStep });
  return [...told, { calls, text }];
};

const object = (model) => async (name) => {
  const { object } = await generateObject({ model: model(name), schema, prompt: question, maxRetries: 0 });
  const { output } = await generateText({
    model: model(name),
    output: Output.object({ schema }),
    prompt: question,
    maxRetries: 0,
  });
  return [object, output];
};

const thinking = { type: "enabled", budgetTokens: 2048 };
const reasoning = { forceReasoning: true, reasoningEffort: "low", reasoningSummary: "auto" };
const switching = {
  "switched responses": switched(openai, { providerOptions: { openai: reasoning } }),
  "switched unstored": switched(openai, {
    providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"], ...reasoning } },
  }),
  "switched compatible": switched(compatible),
  "switched anthropic": switched(anthropic, { providerOptions: { anthropic: { thinking } } }),
};
await report({
  "responses": twoTurns(openai),
  "responses reasoning": twoTurns(openai, {
    providerOptions: { openai: reasoning },
  }),
  "responses unstored": twoTurns(openai, {
    providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"], ...reasoning } },
  }),
  "chat": twoTurns(openai.chat),
  "compatible": twoTurns(compatible),
  "anthropic": twoTurns(anthropic),
  "anthropic thinking": twoTurns(anthropic, { providerOptions: { anthropic: { thinking } } }),
  ...(models.length > 1 ? switching : {}),
  "object responses": object(openai),
  "object chat": object(openai.chat),
  "object compatible": object(compatible),
  "object anthropic": object(anthropic),
});
