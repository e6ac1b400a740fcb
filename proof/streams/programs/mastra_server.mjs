// A durable agent of Mastra's, as its page on durable agents sets one up: LibSQL for the runs, Redis for the events that
// viewers are sent again, recovery at start. The end of each run is written to a file, by the agent's own callbacks.
import { createServer } from 'node:http';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.env.ENVIRONMENT + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Mastra } = await load('@mastra/core');
const { Agent } = await load('@mastra/core/agent');
const { createDurableAgent } = await load('@mastra/core/agent/durable');
const { createTool } = await load('@mastra/core/tools');
const { LibSQLStore } = await load('@mastra/libsql');
const { RedisServerCache } = await load('@mastra/redis');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { z } = await load('zod');
const Redis = (await load('ioredis')).default;

const provider = createOpenAICompatible({ name: 'numbers', baseURL: process.env.PROVIDER, apiKey: 'none' });
const record = createTool({
  id: 'record',
  description: 'Asks for an address.',
  inputSchema: z.object({ url: z.string() }),
  outputSchema: z.string(),
  execute: async (input) => await (await fetch(input.url ?? input.context.url)).text(),
});
const durable = createDurableAgent({
  agent: new Agent({
    id: 'numbers', name: 'numbers', instructions: 'Count.', model: provider('numbers'), tools: { record }, maxRetries: 5,
  }),
  cache: new RedisServerCache({ client: new Redis(process.env.REDIS) }),
});
const mastra = new Mastra({
  agents: { numbers: durable },
  storage: new LibSQLStore({ id: 'runs', url: 'file:mastra.db' }),
  recovery: { durableAgents: 'auto' },
});

const file = (run) => `run-${run}.json`;
const read = (run) => (existsSync(file(run)) ? JSON.parse(readFileSync(file(run), 'utf8')) : { status: 'unknown', text: '' });
const write = (run, status, text = '') => writeFileSync(file(run), JSON.stringify({ status, text }));
const callbacks = (run) => ({
  onFinish: ({ text }) => write(run, 'complete', text),
  onError: () => write(run, 'failed'),
  onAbort: ({ text }) => write(run, 'stopped', text),
});

async function send(response, { output }) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  for await (const chunk of output.fullStream) {
    if (response.destroyed) return;
    if (!response.write(`data: ${JSON.stringify(chunk)}\n\n`)) {
      await new Promise((resolve) => { response.once('drain', resolve); response.once('close', resolve); });
    }
  }
  response.end();
}

async function answer(request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  const [, kind, run, action] = pathname.split('/');
  if (kind === 'health') return response.end('ok');
  if (request.method === 'POST' && !action) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    write(run, 'running');
    const { prompt } = JSON.parse(Buffer.concat(pieces));
    return send(response, await durable.stream(prompt, { runId: run, ...callbacks(run) }));
  }
  if (action === 'stop') {
    durable.abortRunStream(run);
    return response.end('{}');
  }
  if (action === 'stream') return send(response, await durable.observe(run, { offset: 0, idleTimeoutMs: 10_000 }));
  return response.end(JSON.stringify(read(run)));
}

// After a crash: the agent's runs go on, and the end of each is waited for.
const left = readdirSync('.').filter((name) => /^run-.*json$/.test(name)).map((name) => name.slice(4, -5));
for (const run of left.filter((run) => read(run).status === 'running')) {
  durable.observe(run, { ...callbacks(run), idleTimeoutMs: 10_000 }).then(async ({ output }) => { for await (const _ of output.fullStream); }).catch(console.error);
}
mastra.recoverAllDurableAgents().then((said) => console.log('recovered', said), console.error);
process.on('unhandledRejection', (error) => console.error('unhandled', error));
createServer((request, response) => answer(request, response).catch((error) => {
  console.error(error);
  response.headersSent ? response.destroy() : response.writeHead(500).end(String(error));
})).listen(Number(process.env.PORT), '127.0.0.1');
