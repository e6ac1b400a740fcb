// A chat as the AI SDK's page on resumable streams builds it: streamText, resumable-stream on Redis, a chat store in
// files, and a stop endpoint. Node's own web server stands where the page has Next.js.
import { createServer } from 'node:http';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { Readable } from 'node:stream';

const require = createRequire(process.env.ENVIRONMENT + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const {
  convertToModelMessages, createUIMessageStreamResponse, generateId, isStepCount, stepCountIs, streamText,
  toUIMessageStream, tool, UI_MESSAGE_STREAM_HEADERS,
} = await load('ai');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { createResumableStreamContext } = await load('resumable-stream');
const { createClient } = await load('redis');
const { z } = await load('zod');

const provider = createOpenAICompatible({ name: 'numbers', baseURL: process.env.PROVIDER, apiKey: 'none' });
const publisher = createClient({ url: process.env.REDIS });
const subscriber = createClient({ url: process.env.REDIS });
await Promise.all([publisher.connect(), subscriber.connect()]);
const streams = createResumableStreamContext({ waitUntil: (work) => void work, publisher, subscriber });
const working = new Map(); // the abort controllers of the answers under way

const file = (id) => `chat-${id}.json`;
const readChat = (id) => (existsSync(file(id)) ? JSON.parse(readFileSync(file(id), 'utf8')) : { id, messages: [] });
const saveChat = (chat) => {
  const saved = { ...readChat(chat.id), ...chat };
  writeFileSync(file(chat.id) + '.new', JSON.stringify(saved));
  renameSync(file(chat.id) + '.new', file(chat.id));
};

const tools = {
  record: tool({
    description: 'Asks for an address.',
    inputSchema: z.object({ url: z.string() }),
    execute: async ({ url }) => await (await fetch(url)).text(),
  }),
};

async function begin({ id, message }) {
  const messages = [...readChat(id).messages, message];
  saveChat({ id, messages, activeStreamId: null, status: 'running' });
  const controller = new AbortController();
  working.set(id, controller);
  const result = streamText({
    model: provider('numbers'),
    messages: await convertToModelMessages(messages),
    tools,
    stopWhen: (isStepCount ?? stepCountIs)(5),
    maxRetries: 5,
    timeout: { chunkMs: 3000 },
    abortSignal: controller.signal,
  });
  return createUIMessageStreamResponse({
    stream: toUIMessageStream({
      stream: result.stream,
      originalMessages: messages,
      generateMessageId: generateId,
      onError: (error) => String(error),
      onEnd: ({ messages, isAborted, finishReason }) => {
        working.delete(id);
        const status = isAborted ? 'stopped' : finishReason === 'stop' ? 'complete' : 'failed';
        saveChat({ id, messages, activeStreamId: null, status });
      },
    }),
    async consumeSseStream({ stream }) {
      const streamId = generateId();
      await streams.createNewResumableStream(streamId, () => stream);
      if (readChat(id).status === 'running') saveChat({ id, activeStreamId: streamId });
    },
  });
}

async function resume(id) {
  const { activeStreamId } = readChat(id);
  if (activeStreamId == null) return new Response(null, { status: 204 });
  const stream = await streams.resumeExistingStream(activeStreamId);
  return stream ? new Response(stream, { headers: UI_MESSAGE_STREAM_HEADERS }) : new Response(null, { status: 204 });
}

function stop(id) {
  saveChat({ id, activeStreamId: null });
  working.get(id)?.abort();
  return Response.json({ success: true });
}

async function answer(request) {
  const [, , kind, id, action] = request.url.split('/');
  if (kind === 'health') return Response.json({ ok: true });
  if (request.method === 'POST' && !id) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    return begin(JSON.parse(Buffer.concat(pieces)));
  }
  if (action === 'stream') return resume(id);
  if (action === 'stop') return stop(id);
  return Response.json(readChat(id));
}

createServer(async (request, response) => {
  try {
    const made = await answer(request);
    response.writeHead(made.status, Object.fromEntries(made.headers));
    if (!made.body) return response.end();
    const body = Readable.fromWeb(made.body);
    response.on('close', () => body.destroy());
    body.on('error', () => response.destroy());
    body.pipe(response);
  } catch (error) {
    console.error(error);
    response.headersSent ? response.destroy() : response.writeHead(500).end(String(error));
  }
}).listen(Number(process.env.PORT), '127.0.0.1');
process.on('unhandledRejection', (error) => console.error('unhandled', error));
