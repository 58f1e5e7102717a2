// Types that openapi-typescript has made of both descriptions, used as a client would.
import type { components as Control, paths as ControlPaths } from "./api";
import type { components, paths } from "./v1";

type Body<Path extends keyof paths> = paths[Path] extends
  { post: { requestBody: { content: { "application/json": infer Found } } } } ? Found : never;

export const ask: Body<"/v1/chat/completions"> = {
  model: "m",
  messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
};
// @ts-expect-error A field that is not described is refused.
export const wrong: Body<"/v1/embeddings"> = { model: "m", input: "x", temperature: 1 };

export function text(made: components["schemas"]["ChatCompletion"]): string | null {
  return made.choices[0].message.content;
}

export function fault(given: components["schemas"]["Error"] | Control["schemas"]["Error"]): string {
  return `${given.error.param}: ${given.error.message}`;
}

type Pools = ControlPaths["/api/fleet/pools"]["get"]["responses"][200]["content"]["application/json"];

export function last(pools: Pools): [string | undefined, string | null, boolean] {
  return [pools.data.at(-1)?.pool, pools.last_id, pools.has_more];
}
