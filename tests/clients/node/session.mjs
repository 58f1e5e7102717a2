// What a script is told of its gateway, and the one line that it prints at its end.
export const { SLUICE, KEY, MODEL, EMBEDDER } = process.env;
const acts = [];

// One thing that people do with the client; it throws where that does not work.
export function act(name, work) {
  acts.push([name, work]);
}

export function must(truth, what) {
  if (!truth) throw new Error(`not so: ${what}`);
}

export async function report() {
  const done = {};
  for (const [name, work] of acts) {
    try {
      await work();
      done[name] = null;
    } catch (error) {
      done[name] = `${error?.name}: ${error?.message}`.slice(0, 1000);
    }
  }
  console.log(`\n${JSON.stringify(done)}`);
}
