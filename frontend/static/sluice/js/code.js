// The body of a chat as code: what is sent by hand today is a program's first request tomorrow.

function pythonOf(value, indent) {
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    return value.length ? `[\n${value.map((each) => `${inner}${pythonOf(each, inner)},\n`).join("")}${indent}]` : "[]";
  }
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const pairs = Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pythonOf(each, inner)},\n`);
  return pairs.length ? `{\n${pairs.join("")}${indent}}` : "{}";
}

function curl(base, body) {
  // Within quotes of a here-document nothing is special but its own end.
  return [
    `curl -N ${base}/v1/chat/completions \\`,
    '  -H "Authorization: Bearer $SLUICE_API_KEY" \\',
    '  -H "Content-Type: application/json" \\',
    "  -d @- <<'JSON'",
    JSON.stringify(body, null, 2),
    "JSON",
  ].join("\n");
}

// What the form has; the library refuses names that it does not know, and takes those apart.
const NAMED = new Set([
  "model", "messages", "temperature", "top_p", "max_tokens", "seed", "stop", "tools", "response_format", "stream",
  "stream_options",
]);

function python(base, body) {
  const all = Object.entries(body);
  const others = all.filter(([name]) => !NAMED.has(name));
  const given = all.filter(([name]) => NAMED.has(name));
  if (others.length) given.push(["extra_body", Object.fromEntries(others)]);
  const named = given.map(([name, value]) => `    ${name}=${pythonOf(value, "    ")},`);
  return [
    "import os",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${base}/v1", api_key=os.environ["SLUICE_API_KEY"])`,
    "stream = client.chat.completions.create(",
    ...named,
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join("\n");
}

function node(base, body) {
  return [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: "${base}/v1", apiKey: process.env.SLUICE_API_KEY });`,
    `const stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});`,
    "for await (const chunk of stream) {",
    '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");',
    "}",
  ].join("\n");
}

export const LANGUAGES = { curl, python, node };
