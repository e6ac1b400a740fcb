// What every program here does: run its scenarios for each model, and print one JSON line with what came of them.
export const base = process.env.TAILRACE_URL;
export const key = process.env.TAILRACE_API_KEY;
export const models = JSON.parse(process.env.MODELS);
export const question = "Do I need an umbrella in Bergen?";

export async function report(scenarios) {
  const shown = {};
  for (const [name, scenario] of Object.entries(scenarios)) {
    for (const model of models) {
      try {
        shown[`${name} ${model}`] = await scenario(model);
      } catch (error) {
        shown[`${name} ${model}`] = { error: `${error?.name}: ${error?.message ?? error}`, cause: String(error?.cause ?? "") };
      }
    }
  }
  console.log(JSON.stringify(shown));
}
