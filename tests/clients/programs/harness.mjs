// What every program here does: run its scenarios for each model, and print one JSON line with what came of them.
export const base = process.env.TAILRACE_URL;
export const key = process.env.TAILRACE_API_KEY;
export const models = JSON.parse(process.env.MODELS);
export const question = "Do I need an umbrella in Bergen?";
const LONGEST_MS = 30_000;

export async function report(scenarios) {
  const shown = {};
  for (const [name, scenario] of Object.entries(scenarios)) {
    for (const model of models) {
      shown[`${name} ${model}`] = await within(LONGEST_MS, scenario(model)).catch((error) => ({ error: String(error) }));
    }
  }
  console.log(JSON.stringify(shown));
}

async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`nothing after ${ms} ms`)), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
