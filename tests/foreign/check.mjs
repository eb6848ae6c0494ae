// Starts the foreign servers, delegates the same tasks on each API, and compares what the person
// got with what the server says it answered. Called by `run`, which says how.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const [place, adjutant, litellm] = process.argv.slice(2);
const here = import.meta.dirname;
const price = { input: 2, output: 10, cache_read: 1, cache_write: 2 };
const key = "sk-" + "0123456789abcdef".repeat(4);
const servers = [];
let failed = 0;

function check(what, is, wanted) {
  const [got, expected] = [is, wanted].map((value) => JSON.stringify(value));
  if (got === expected) return console.log(`ok    ${what}`);
  failed += 1;
  console.log(`WRONG ${what}\n      is     ${got}\n      wanted ${expected}`);
}

// Starts a server and waits until `ready` finds what it looks for in the output.
function start(command, args, env, ready) {
  const server = spawn(command, args, { env: { ...process.env, ...env } });
  servers.push(server);
  return new Promise((resolve, reject) => {
    let said = "";
    const hear = (bytes) => {
      said += bytes;
      const found = ready.exec(said);
      if (found) resolve(found[1]);
    };
    server.stdout.on("data", hear);
    server.stderr.on("data", hear);
    server.on("exit", (code) => reject(new Error(`${command} ended with ${code}: ${said}`)));
    setTimeout(() => reject(new Error(`${command} did not start: ${said}`)), 120_000).unref();
  });
}

const aimock = (chunk) =>
  start(
    process.execPath,
    [
      join(place, "npm/node_modules/@copilotkit/aimock/dist/cli.js"),
      ...["--port", "0", "--strict", "--validate-on-load", "--chunk-size", String(chunk)],
      ...["--fixtures", join(here, "conversation.json")],
    ],
    {},
    /listening on (http:\S+)/,
  );

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

async function proxyBefore(url) {
  const port = await freePort();
  const config = join(place, "litellm.yaml");
  const params = { model: "openai/gpt-4o", api_base: `${url}/v1`, api_key: "none" };
  // JSON is YAML.
  writeFileSync(config, JSON.stringify({ model_list: [{ model_name: "gpt-4o", litellm_params: params }] }));
  const env = { LITELLM_MASTER_KEY: key, LITELLM_LOCAL_MODEL_COST_MAP: "True" };
  const args = ["--config", config, "--host", "127.0.0.1", "--port", String(port)];
  await start(litellm, args, env, /(running on http)/i);
  return `http://127.0.0.1:${port}`;
}

// A home whose configuration knows the servers, and the work tree of the fakes' tests.
function prepare(providers) {
  const config = join(place, "home/.config/adjutant");
  mkdirSync(config, { recursive: true });
  mkdirSync(join(place, "work"));
  for (const name of ["a", "b"]) writeFileSync(join(place, `work/${name}.rs`), `fn ${name}() {}\n`);
  const sections = providers.map(({ name, wire, base }) =>
    [
      `[providers.${name}]`,
      `base_url = "${base}"`,
      `wire = "${wire}"`,
      'key_env = "FOREIGN_KEY"',
      `[models."${name}/gpt-4o"]`,
      "window = 128000",
      "max_output = 4096",
      `price = { ${Object.entries(price).map(([kind, usd]) => `${kind} = ${usd.toFixed(1)}`).join(", ")} }`,
    ].join("\n"),
  );
  writeFileSync(join(config, "config.toml"), sections.join("\n") + "\n");
}

function run(state, ...args) {
  const env = { HOME: join(place, "home"), ADJUTANT_HOME: join(place, state), FOREIGN_KEY: key };
  return spawnSync(adjutant, args, { cwd: join(place, "work"), env, encoding: "utf8" });
}

const journal = async (url) => (await fetch(`${url}/__aimock/journal?limit=1000`)).json();

async function compare({ name, url }) {
  const before = (await journal(url)).length;
  const model = `${name}/gpt-4o`;
  const ran = run(name, "delegate", join(here, "tasks.json"), "--yes", "--json", "--model", model);
  check(`${name}: exit code`, ran.status, 0);
  if (ran.status !== 0) console.log(ran.stderr);
  const results = JSON.parse(ran.stdout || '{"results":[]}').results;
  check(
    `${name}: three reports, in the order of the tasks`,
    results.map(({ label, outcome, report }) => [label, outcome, report]),
    [
      ["auth", "completed", "Auth is fine: ä🦀"],
      ["docs", "completed", "No docs."],
      ["luck", "completed", "I am lucky."],
    ],
  );
  const served = (await journal(url)).slice(before);
  check(`${name}: requests, each accepted`, served.map(({ response }) => response.status), Array(5).fill(200));
  const seen = served.map(({ body }) => JSON.stringify(body));
  const answered = (...parts) => seen.some((body) => parts.every((part) => body.includes(part)));
  check(`${name}: both files came back to the model`, answered("fn a() {}", "fn b() {}"), true);
  check(`${name}: the missing file was an answer, not an end`, answered("missing.md"), true);
  const used = served.map(({ response }) => response.fixture.response.usage);
  const sum = (kind) => used.reduce((total, usage) => total + usage[kind], 0);
  const [input, output] = [sum("prompt_tokens"), sum("completion_tokens")];
  const { total } = JSON.parse(run(name, "cost", "--json").stdout);
  check(`${name}: the bill is the sum of what was reported`, total.usage, { input, output, cache_read: 0, cache_write: 0 });
  check(`${name}: nothing in it is estimated`, [total.calls, total.estimated_tokens], [5, 0]);
  const usd = (input * price.input + output * price.output) / 1e6;
  check(`${name}: in dollars`, total.cost_usd.toFixed(9), usd.toFixed(9));
}

async function main() {
  // Four UTF-16 units a delta cut the crab of the first report in two.
  const url = await aimock(4);
  const apis = [
    { name: "chat", wire: "chat", base: `${url}/v1`, url },
    { name: "responses", wire: "responses", base: `${url}/v1`, url },
    { name: "messages", wire: "anthropic", base: url, url },
    { name: "gemini-wire", wire: "gemini", base: url, url },
  ];
  if (litellm) {
    // LiteLLM does not survive half a character.
    const behind = await aimock(64);
    apis.push({ name: "litellm", wire: "chat", base: `${await proxyBefore(behind)}/v1`, url: behind });
  }
  prepare(apis);
  const { version } = JSON.parse(readFileSync(join(place, "npm/node_modules/@copilotkit/aimock/package.json")));
  console.log(`aimock ${version}${litellm ? ", LiteLLM before it" : ""}`);
  for (const api of apis) await compare(api);
}

try {
  await main();
} catch (error) {
  failed += 1;
  console.log(`WRONG ${error.message}`);
} finally {
  for (const server of servers) {
    server.removeAllListeners("exit");
    server.kill();
  }
}
console.log(failed ? `${failed} checks failed` : "the same tasks ran unchanged on every API");
process.exit(failed ? 1 : 0);
