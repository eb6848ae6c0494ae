// Compares what the client's model saw, what the client said and what was recorded. Called by `drive`.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [client, place] = process.argv.slice(2);
const read = (name) => readFileSync(join(place, name), "utf8");
let failed = false;

function check(what, holds, seen) {
  console.log(`${holds ? "ok   " : "WRONG"} ${client}: ${what}`);
  if (holds) return;
  failed = true;
  console.log(`      ${JSON.stringify(seen).slice(0, 2000)}`);
}

const word = /REPORT-\S+/.exec(read("work/notes.txt"))[0];
const asked = readdirSync(join(place, "asked"))
  .sort()
  .map((name) => JSON.parse(read(join("asked", name))));
const TOOLS = [
  ...["Delegate", "delegate_start", "delegate_wait", "delegate_status"],
  ...["delegate_write", "delegate_diff", "delegate_merge"],
  ...["delegate_result", "delegate_cancel", "validate_return"],
];

// Titles and the like are asked for without tools.
const turns = asked.filter((request) => request.tools?.some((tool) => tool.endsWith("Delegate")));
const [first, second] = turns;
const missing = TOOLS.filter((tool) => !first?.tools.some((name) => name.endsWith(tool)));
check("its first request offers every tool of the server", first && missing.length === 0, missing);
check("and has no result yet", first?.results.length === 0, first?.results);
const results = second?.results ?? [];
check("its second has one result, with the report", results.length === 1 && results[0].includes(word), results);
check("there is no third", turns.length === 2, turns.length);
check("its answer uses the report", read("said").includes(`The subagent reported ${word}.`), read("said"));

const { runs } = JSON.parse(read("status.json"));
check("one run is recorded, completed", runs?.length === 1 && runs[0].state === "completed", runs);
const events = read("log.jsonl").trim().split("\n").map((line) => JSON.parse(line).event ?? JSON.parse(line));
const types = events.map((event) => event.type);
const STEPS = ["granted", "tool_called", "tool_returned", "ended", "run_ended"];
check("its journal has the work from grant to end", STEPS.every((it) => types.includes(it)), types);
process.exitCode = failed ? 1 : 0;
