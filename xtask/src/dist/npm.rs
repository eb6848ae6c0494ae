//! The npm packages: `adjutant-cli`, and `adjutant-cli-linux-x64` with the program.
//!
//! After installation `bin/adjutant` of the first is a hard link to the program. Where npm does not run installation
//! scripts, it is a launcher in JavaScript, which starts the same program some 70 ms later.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Problem, Release, copy, copy_tree, readme, run, write};

const PLATFORM_PACKAGE: &str = "adjutant-cli-linux-x64";

/// Makes both packages.
pub(super) fn make_packages(release: &Release) -> Result<(), Problem> {
    let documents = release.prefix.join("share/doc/adjutant");
    let program = release.build_dir("npm-program");
    copy(&release.prefix.join("bin/adjutant"), &program.join("bin/adjutant"), 0o755)?;
    copy(&documents.join("THIRD-PARTY-NOTICES"), &program.join("THIRD-PARTY-NOTICES"), 0o644)?;
    let mut about = description(release, PLATFORM_PACKAGE);
    about["os"] = json!(["linux"]);
    about["cpu"] = json!(["x64"]);
    pack(release, &program, &about)?;

    let launcher = release.build_dir("npm-launcher");
    copy(&release.packaging("npm-launcher.js"), &launcher.join("bin/adjutant"), 0o755)?;
    copy(&release.packaging("npm-install.js"), &launcher.join("install.js"), 0o644)?;
    copy_tree(&release.prefix.join("share/man/man1"), &launcher.join("man"))?;
    let mut about = description(release, "adjutant-cli");
    // npm links these to where `man` looks if the package is installed globally.
    about["man"] = json!(man_pages(&launcher.join("man"))?);
    about["bin"] = json!({ "adjutant": "bin/adjutant" });
    about["scripts"] = json!({ "postinstall": "node install.js" });
    about["engines"] = json!({ "node": ">=18" });
    about["optionalDependencies"] = json!({ PLATFORM_PACKAGE: release.version });
    pack(release, &launcher, &about)
}

/// Returns the paths of man pages, relative to the package.
fn man_pages(man: &Path) -> Result<Vec<String>, Problem> {
    let entries = std::fs::read_dir(man).map_err(|error| error.to_string())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.map(|name| format!("man/{name}")).collect();
    names.sort();
    Ok(names)
}

fn description(release: &Release, name: &str) -> Value {
    json!({
        "name": name,
        "version": release.version,
        "description": "Bounded delegation for AI agents: the command `adjutant`",
        "license": "MIT OR Apache-2.0",
    })
}

fn pack(release: &Release, folder: &Path, about: &Value) -> Result<(), Problem> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&release.root.join(name), &folder.join(name), 0o644)?;
    }
    write(&folder.join("README.md"), &readme::packaged(release)?)?;
    write(&folder.join("package.json"), &format!("{about:#}\n"))?;
    run(Command::new("npm")
        .args(["pack", "--silent", "--pack-destination"])
        .arg(&release.dist)
        .current_dir(folder)
        .stdout(Stdio::null()))
}
