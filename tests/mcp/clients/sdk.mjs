// A client with the official SDK that can ask its user: the same work as `fix` has the other clients do, approved in forms,
// in one of the two eras of the protocol. Called by `fix`, in the project.
//
//     VERIFY=COMMAND node sdk.mjs PACKAGE ERA

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

const [folder, era] = process.argv.slice(2);
const { Client } = await import(`${folder}/dist/index.mjs`);
const { StdioClientTransport } = await import(`${folder}/dist/stdio.mjs`);
const verify = process.env.VERIFY;
let failed = false;

function check(what, holds, seen) {
  console.log(`${holds ? "ok   " : "WRONG"} sdk ${era}: ${what}`);
  if (holds) return;
  failed = true;
  console.log(`      ${JSON.stringify(seen)?.slice(0, 2000)}`);
}
const pass = () => spawnSync("sh", ["-c", verify]).status === 0;

// What the person answers to each form. Running the tests first takes longer than a program needs to answer.
const answers = [];
const forms = [];
const mode = era === "2026-07-28" ? { pin: era } : "legacy";
const client = new Client(
  { name: "sdk", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
client.setRequestHandler("elicitation/create", ({ params }) => {
  forms.push(params.message);
  check(`nothing is in the checkout before the answer to form ${forms.length}`, !pass());
  return { action: "accept", content: { answer: answers.shift() } };
});
const { command, args, env } = JSON.parse(readFileSync(".mcp.json", "utf8")).mcpServers.adjutant;
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env, ...env } }));

async function call(name, args, answer) {
  if (answer) answers.push(answer);
  const result = await client.callTool({ name, arguments: args }, { timeout: 300_000 });
  check(`${name} ${answer ? `asks, and gets the answer ${answer}` : "does not ask"}`, answers.length === 0, result);
  answers.length = 0;
  return { ...result, data: result.structuredContent ?? {} };
}

const task = { label: "fix", prompt: `Make the failing tests pass. Era: ${era}.` };
const write = { tasks: [task], verify, verifyKeep: ["tests/**"] };
const refused = await call("delegate_write", write, "refuse");
check("a refused writer is an error", refused.isError && refused.data.state === "refused", refused);
let done = await call("delegate_write", write, "start");
check("the form has the verify command in full", forms.at(-1)?.includes(verify), forms);
while (done.data.done === false) done = await call("delegate_wait", { run: done.data.run });
const [result] = done.data.results?.results ?? [];
check("the client sees `verification: passed`", result?.verification === "passed", done);
const merge = { run: done.data.run, apply: true };
const no = await call("delegate_merge", merge, "refuse");
check("a refused merge is an error", no.isError, no);
const merged = await call("delegate_merge", merge, "merge");
check("the client learns that the work is merged", merged.data.results?.[0]?.fate === "merged", merged);
check("and the tests of the project pass", pass());
await client.close();
process.exitCode = failed ? 1 : 0;
