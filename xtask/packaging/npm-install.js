// Replaces the launcher by a hard link to the program, so that no JavaScript runs when it starts. Where that is not
// possible, the launcher stays and works too.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

try {
  const program = require.resolve("adjutant-cli-linux-x64/bin/adjutant");
  const launcher = path.join(__dirname, "bin", "adjutant");
  const link = `${launcher}.new`;
  fs.rmSync(link, { force: true });
  fs.linkSync(program, link);
  fs.renameSync(link, launcher);
} catch {
  // Another platform, or another file system.
}
