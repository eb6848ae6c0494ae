#!/usr/bin/env node
// Starts the program. Used where npm has not run install.js, which replaces this file by the program itself.
"use strict";
const { spawn } = require("node:child_process");

let program;
try {
  program = require.resolve("adjutant-cli-linux-x64/bin/adjutant");
} catch {
  console.error(
    `adjutant: there is no package for ${process.platform} ${process.arch}, or npm has left out optional dependencies.\n` +
      "Adjutant runs on x86-64 Linux; on macOS and Windows use a Linux container or WSL.",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// ctrl+c reaches the program through the terminal; it decides when to end.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => signal !== "SIGINT" && child.kill(signal));
}
child.on("error", (error) => {
  console.error(`adjutant: cannot start ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
