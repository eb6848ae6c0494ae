// A model that follows a script, for clients of other projects: it speaks the APIs they expect,
// calls Delegate where it is offered, and answers with a word that only the tool's result can have
// taught it. Prints its address; writes every request it gets to the folder given.
//
//     [VERIFY=COMMAND] node model.mjs FOLDER

import { existsSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const folder = process.argv[2];
let count = 0;

// What subagents report begins so; see script.toml.
const REPORT = /REPORT-[0-9A-Z]+/;
const CALL = {
  tasks: [{ label: "reader", prompt: "Read notes.txt and report what it says." }],
};
// What else it calls where the question has one of these words: an equal call would begin nothing new.
const OTHERS = {
  LATER: ["delegate_start", { tasks: [{ label: "later", prompt: "Take your time." }] }],
  AGAIN: ["Delegate", { tasks: [{ label: "reader", prompt: "Read notes.txt again." }] }],
};

// What it calls one after the other where the question has this word, given the results so far. Before a call with
// `after`, it waits until that file is next to its folder: the person has answered.
const fix = { label: "fix", prompt: "Make the failing tests pass." };
const write = ["delegate_write", { tasks: [fix], verify: process.env.VERIFY, verifyKeep: ["tests/**"] }];
const run = (result) => /run_[0-9]+_[0-9a-z]+/.exec(result)?.[0];
const merge = (after) => ({ after, call: (results) => ["delegate_merge", { run: run(results[2]), apply: true }] });
const REPAIR = [
  { call: () => write },
  { call: (results) => ["delegate_wait", { run: run(results[0]) }] },
  { call: () => write },
  { call: (results) => ["delegate_wait", { run: run(results[2]) }] },
  { call: (results) => ["delegate_diff", { run: run(results[2]) }] },
  merge(),
  merge("merge-refused"),
  merge(),
  merge("merge-approved"),
];

// Returns the next step of the plan, once the person has answered what it waits for.
async function next(tools, results) {
  const { call, after } = REPAIR[results.length] ?? {};
  if (!call) return { text: `The last result: ${results.at(-1)}` };
  while (after && !existsSync(join(folder, "..", after))) await new Promise((done) => setTimeout(done, 100));
  const [name, args] = call(results);
  const tool = tools.find((it) => it.endsWith(name));
  return tool ? { tool, call: args } : { text: "A short title" };
}

// Decides what to say from what is on offer and what has come back.
async function reply(tools, results, sent) {
  if (sent.includes("REPAIR")) return next(tools, results);
  if (results.length > 0) {
    const word = REPORT.exec(results.join("\n"));
    return { text: word ? `The subagent reported ${word[0]}.` : "The tool gave no report." };
  }
  const word = Object.keys(OTHERS).find((it) => sent.includes(it));
  const [name, call] = word ? OTHERS[word] : ["Delegate", CALL];
  const tool = tools.find((it) => it.endsWith(name));
  return tool ? { tool, call } : { text: "A short title" };
}

const text = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n");

// Each API: where it is asked, what it offers and has got back, and how it is answered.
const APIS = {
  "/v1/messages": {
    tools: (body) => (body.tools ?? []).map((tool) => tool.name),
    results: (body) =>
      body.messages
        .flatMap((message) => (Array.isArray(message.content) ? message.content : []))
        .filter((part) => part.type === "tool_result")
        .map((part) => text(part.content)),
    answer({ text, tool, call, id }, send) {
      const usage = { input_tokens: 100, output_tokens: 10 };
      const message = { id: "msg_1", type: "message", role: "assistant", model: "scripted", content: [], usage };
      const event = (type, more) => send(type, { type, ...more });
      event("message_start", { message: { ...message, stop_reason: null, stop_sequence: null } });
      const block = tool
        ? { type: "tool_use", id: `toolu_${id}`, name: tool, input: {} }
        : { type: "text", text: "" };
      const delta = tool
        ? { type: "input_json_delta", partial_json: JSON.stringify(call) }
        : { type: "text_delta", text };
      event("content_block_start", { index: 0, content_block: block });
      event("content_block_delta", { index: 0, delta });
      event("content_block_stop", { index: 0 });
      const stop = { stop_reason: tool ? "tool_use" : "end_turn", stop_sequence: null };
      event("message_delta", { delta: stop, usage });
      event("message_stop", {});
    },
    whole: ({ text }) => ({
      ...{ id: "msg_1", type: "message", role: "assistant", model: "scripted", stop_reason: "end_turn" },
      ...{ stop_sequence: null, content: [{ type: "text", text: text ?? "" }] },
      usage: { input_tokens: 100, output_tokens: 10 },
    }),
  },
  "/v1/chat/completions": {
    tools: (body) => (body.tools ?? []).map((tool) => tool.function.name),
    results: (body) =>
      body.messages.filter((message) => message.role === "tool").map((message) => text(message.content)),
    answer({ text, tool, call: args, id }, send) {
      const chunk = (delta, finish_reason = null, more = {}) =>
        send(null, {
          ...{ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "scripted" },
          ...{ choices: [{ index: 0, delta, finish_reason }], ...more },
        });
      const call = { name: tool, arguments: JSON.stringify(args) };
      chunk(
        tool
          ? { role: "assistant", tool_calls: [{ index: 0, id: `call_${id}`, type: "function", function: call }] }
          : { role: "assistant", content: text },
      );
      const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
      chunk({}, tool ? "tool_calls" : "stop", { usage });
      send(null, "[DONE]");
    },
  },
  "/v1/responses": {
    // A server's tools may be offered one by one or under its name.
    tools: (body) => (body.tools ?? []).flatMap((tool) => (tool.tools ?? [tool]).map((one) => one.name ?? "")),
    results: (body) =>
      body.input
        .filter((item) => item.type === "function_call_output")
        .map((item) => (Array.isArray(item.output) ? text(item.output) : String(item.output))),
    answer({ text, tool, call: args, id }, send, body) {
      const response = { id: "resp_1", object: "response", model: "scripted" };
      const event = (type, more) => send(type, { type, ...more });
      event("response.created", { response: { ...response, status: "in_progress" } });
      const group = (body.tools ?? []).find((one) => one.tools?.some((inner) => inner.name === tool));
      const call = { type: "function_call", id: `fc_${id}`, call_id: `call_${id}`, name: tool };
      const item = tool
        ? { ...call, ...(group ? { namespace: group.name } : {}), arguments: JSON.stringify(args) }
        : { type: "message", id: "msg_1", role: "assistant", content: [{ type: "output_text", text }] };
      event("response.output_item.added", { output_index: 0, item });
      event("response.output_item.done", { output_index: 0, item });
      const usage = { input_tokens: 100, output_tokens: 10, total_tokens: 110 };
      event("response.completed", { response: { ...response, status: "completed", output: [item], usage } });
    },
  },
};

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", async () => {
    const { pathname } = new URL(request.url, "http://localhost");
    const api = request.method === "POST" ? APIS[pathname] : undefined;
    const sent = Buffer.concat(chunks).toString();
    const body = api ? JSON.parse(sent) : null;
    count += 1;
    const seen = api
      ? { tools: api.tools(body), results: api.results(body) }
      : { sent: sent.slice(0, 2000) };
    const note = { method: request.method, path: pathname, ...seen };
    const name = join(folder, `${String(count).padStart(3, "0")}.json`);
    // Other processes read it at any time.
    writeFileSync(`${folder}.part`, JSON.stringify(note, null, 1));
    renameSync(`${folder}.part`, name);
    if (process.env.WHOLE) writeFileSync(join(folder, `${count}.whole`), sent);
    if (!api) return response.writeHead(404).end("{}");
    const said = await reply(seen.tools, seen.results, sent);
    if (!body.stream) {
      response.writeHead(200, { "content-type": "application/json" });
      return response.end(JSON.stringify(api.whole ? api.whole(said) : {}));
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (name, data) => {
      if (name) response.write(`event: ${name}\n`);
      response.write(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
    };
    api.answer({ ...said, id: seen.results.length }, send, body);
    response.end();
  });
});

server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
