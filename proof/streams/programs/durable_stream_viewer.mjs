// A viewer with the Durable Streams protocol's own client: each batch of a stream as a line of JSON, with the offset
// after it. `live` is long-poll or sse. The client reconnects by itself. A slow reader of this output slows it down.
import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.env.ENVIRONMENT + '/');
const { stream } = await import(pathToFileURL(require.resolve('@durable-streams/client')).href);
const [url, offset, live] = process.argv.slice(2);

function tell(line) {
  let rest = Buffer.from(JSON.stringify(line) + '\n');
  while (rest.length) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}

const response = await stream({ url, offset, live, json: true });
response.subscribeJson((batch) => tell({ items: batch.items, offset: batch.offset }));
process.on('exit', (code) => {
  if (code === 0) tell({ items: [], offset: response.offset, closed: response.streamClosed });
});
