//! Finds out how a copy of the program was installed, by its path and by the lists of package managers.
//!
//! Start at [`find_installation`]. Reads only; what cannot be read does not count. The packages are files and not in
//! any registry, so the commands name files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::hints::quoted;

/// The Python package, as its directory is named.
const WHEEL: &str = "adjutant_cli-";

/// The npm packages, in the order in which one needs the other.
const NPM: &str = "./adjutant-cli-linux-x64-*.tgz ./adjutant-cli-[0-9]*.tgz";

/// The prefixes that npm uses for global packages if nothing else is configured.
const USUAL_NPM_PREFIXES: [&str; 2] = ["usr", "usr/local"];

/// The Python package as a file.
const WHEELS: &str = "./adjutant_cli-*.whl";

/// How a copy was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Installation {
    /// By the Debian package.
    Debian,
    /// By npm: for the user or machine if `is_global`, otherwise in the project `folder`.
    Npm { folder: PathBuf, is_global: bool },
    /// By a Python package manager: its name, the prefix, and for pip how to call it.
    Python { manager: &'static str, prefix: PathBuf, pip: PipCommand },
    /// By `cargo install`, from this source as cargo writes it.
    Cargo { source: String },
    /// By `install.sh`, below this prefix.
    Installer { prefix: PathBuf },
    /// Built in a source tree, with this profile.
    Source { tree: PathBuf, profile: String },
    /// No list has it.
    Unknown,
}

/// How pip installs below a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipCommand {
    /// With the Python of the prefix, a virtual environment.
    OfPrefix,
    /// With the system's Python; `is_managed` if the distribution forbids that without a flag.
    OfSystem { is_user: bool, is_managed: bool },
}

/// Finds out how `program` was installed on the system below `root`.
pub(super) fn find_installation(root: &Path, program: &Path) -> Installation {
    let found = debian(root, program)
        .or_else(|| npm(program))
        .or_else(|| cargo(program))
        .or_else(|| python(root, program))
        .or_else(|| installer(program))
        .or_else(|| source(program));
    found.unwrap_or(Installation::Unknown)
}

impl Installation {
    /// Returns the word for programs.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Npm { .. } => "npm",
            Self::Python { manager, .. } => manager,
            Self::Cargo { .. } => "cargo",
            Self::Installer { .. } => "installer",
            Self::Source { .. } => "source",
            Self::Unknown => "unknown",
        }
    }

    /// Describes it for a person.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Debian => "the Debian package `adjutant`".to_owned(),
            Self::Npm { is_global: true, .. } => {
                "npm, the global package `adjutant-cli`".to_owned()
            }
            Self::Npm { folder, .. } => {
                format!("npm, the package `adjutant-cli` of {}", folder.display())
            }
            Self::Python { manager, prefix, .. } => {
                format!("{manager}, the package `adjutant-cli` below {}", prefix.display())
            }
            Self::Cargo { source } => format!("cargo install, from {source}"),
            Self::Installer { prefix } => format!("install.sh, below {}", prefix.display()),
            Self::Source { tree, profile } => {
                format!("cargo build ({profile}) in {}", tree.display())
            }
            Self::Unknown => "unknown; no package manager lists this file".to_owned(),
        }
    }

    /// Returns the command that updates it.
    pub(super) fn update_command(&self) -> Option<String> {
        let path = |path: &Path| quoted(&path.display().to_string());
        Some(match self {
            Self::Debian => "sudo dpkg -i ./adjutant_*_amd64.deb".to_owned(),
            Self::Npm { folder, is_global: true } => match folder.parent() {
                Some(prefix) if !USUAL_NPM_PREFIXES.iter().any(|it| prefix.ends_with(it)) => {
                    format!("npm install -g --prefix {} {NPM}", path(prefix))
                }
                Some(_) | None => format!("npm install -g {NPM}"),
            },
            Self::Npm { folder, .. } => format!("npm install --prefix {} {NPM}", path(folder)),
            Self::Python { manager: "pipx", .. } => format!("pipx install --force {WHEELS}"),
            Self::Python { manager: "uv tool", .. } => {
                format!("uv tool install --reinstall {WHEELS}")
            }
            Self::Python { manager: "uv", prefix, .. } => {
                let python = path(&prefix.join("bin/python"));
                format!("uv pip install --python {python} --reinstall {WHEELS}")
            }
            Self::Python { prefix, pip: PipCommand::OfPrefix, .. } => {
                let python = path(&prefix.join("bin/python3"));
                format!("{python} -m pip install --force-reinstall {WHEELS}")
            }
            Self::Python { pip: PipCommand::OfSystem { is_user, is_managed }, .. } => {
                let user = if *is_user { " --user" } else { "" };
                let managed = if *is_managed { " --break-system-packages" } else { "" };
                format!("python3 -m pip install{user}{managed} --force-reinstall {WHEELS}")
            }
            Self::Cargo { source } => cargo_command(source),
            Self::Installer { prefix } => format!("sh install.sh --prefix {}", path(prefix)),
            Self::Source { tree, profile } => {
                let profile = match profile.as_str() {
                    "debug" => String::new(),
                    "release" => " --release".to_owned(),
                    other => format!(" --profile {other}"),
                };
                format!("cd {} && git pull && cargo build{profile}", path(tree))
            }
            Self::Unknown => return None,
        })
    }

    /// Returns whether the command needs a package or an installer in the current directory.
    pub(super) const fn needs_package(&self) -> bool {
        match self {
            Self::Debian | Self::Npm { .. } | Self::Python { .. } | Self::Installer { .. } => true,
            Self::Cargo { .. } | Self::Source { .. } | Self::Unknown => false,
        }
    }
}

fn cargo_command(source: &str) -> String {
    let (kind, address) = source.split_once('+').unwrap_or(("registry", source));
    match kind {
        "path" => {
            let folder = address.strip_prefix("file://").unwrap_or(address);
            format!("cargo install --locked --path {}", quoted(folder))
        }
        "git" => {
            let address = address.split(['?', '#']).next().unwrap_or(address);
            format!("cargo install --locked --git {} adjutant-cli", quoted(address))
        }
        _ => "cargo install --locked adjutant-cli".to_owned(),
    }
}

/// The package's list of files has the program.
fn debian(root: &Path, program: &Path) -> Option<Installation> {
    let listed = Path::new("/").join(program.strip_prefix(root).ok()?);
    let lists = ["adjutant.list", "adjutant:amd64.list"];
    let has_it = |name: &&str| {
        let text = fs::read_to_string(root.join("var/lib/dpkg/info").join(name));
        text.is_ok_and(|text| text.lines().any(|line| Path::new(line) == listed))
    };
    lists.iter().any(has_it).then_some(Installation::Debian)
}

/// The program is in `node_modules`, in either of the two packages.
fn npm(program: &Path) -> Option<Installation> {
    let modules =
        program.ancestors().filter(|it| it.file_name().is_some_and(|it| it == "node_modules"));
    let modules = modules.last()?;
    let folder = modules.parent()?.to_owned();
    // npm keeps global packages in PREFIX/lib/node_modules.
    let is_global = folder.file_name().is_some_and(|it| it == "lib");
    Some(Installation::Npm { folder, is_global })
}

/// Cargo's list, beside its `bin`, names the crate.
fn cargo(program: &Path) -> Option<Installation> {
    let list = program.parent()?.parent()?.join(".crates.toml");
    let list: toml::Table = toml::from_str(&fs::read_to_string(list).ok()?).ok()?;
    // A key is `NAME VERSION (SOURCE)`.
    let mut crates = list.get("v1")?.as_table()?.keys();
    let package = crates.find(|key| key.starts_with("adjutant-cli "))?;
    let (_, source) = package.split_once('(')?;
    Some(Installation::Cargo { source: source.trim_end_matches(')').to_owned() })
}

/// A wheel's record beside the program's `bin` names it.
fn python(root: &Path, program: &Path) -> Option<Installation> {
    let prefix = program.parent()?.parent()?;
    let libraries = [prefix.join("lib"), prefix.join("local/lib")];
    let versions = libraries.iter().flat_map(|lib| children(lib, "python3"));
    let mut packages = versions
        .flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.join(name)));
    let info = packages.find_map(|folder| {
        children(&folder, WHEEL).into_iter().find(|it| {
            let record = fs::read_to_string(it.join("RECORD")).unwrap_or_default();
            record
                .lines()
                .any(|line| line.split(',').next().is_some_and(|it| it.ends_with("bin/adjutant")))
        })
    })?;
    let installer = fs::read_to_string(info.join("INSTALLER")).unwrap_or_default();
    let has = |name: &str| prefix.components().any(|part| part.as_os_str() == name);
    let manager = if prefix.join("uv-receipt.toml").is_file() {
        "uv tool"
    } else if has("pipx") {
        "pipx"
    } else if installer.trim() == "uv" {
        "uv"
    } else {
        "pip"
    };
    let pip = if prefix.join("bin/python3").exists() {
        PipCommand::OfPrefix
    } else {
        let libraries = children(&root.join("usr/lib"), "python3");
        PipCommand::OfSystem {
            is_user: prefix.ends_with(".local"),
            is_managed: libraries.iter().any(|it| it.join("EXTERNALLY-MANAGED").exists()),
        }
    };
    Some(Installation::Python { manager, prefix: prefix.to_owned(), pip })
}

/// Returns the entries of a directory whose names start with `start`.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let fits = |it: &fs::DirEntry| it.file_name().to_string_lossy().starts_with(start);
    entries.flatten().filter(fits).map(|it| it.path()).collect()
}

/// The list that `install.sh` writes names the program.
fn installer(program: &Path) -> Option<Installation> {
    let prefix = program.parent()?.parent()?;
    let list = fs::read_to_string(prefix.join("share/adjutant/installed-files")).ok()?;
    let is_listed = list.lines().any(|line| prefix.join(line) == program);
    is_listed.then(|| Installation::Installer { prefix: prefix.to_owned() })
}

/// The program is in the target directory of a source tree.
fn source(program: &Path) -> Option<Installation> {
    let folder = program.parent()?;
    let tree = folder.ancestors().find(|it| it.join("crates/adjutant-cli/Cargo.toml").is_file())?;
    let is_deps = folder.file_name().is_some_and(|it| it == "deps");
    let profile = if is_deps { folder.parent()? } else { folder }.file_name()?;
    let profile = profile.to_string_lossy().into_owned();
    Some(Installation::Source { tree: tree.to_owned(), profile })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Installation, find_installation};

    /// The program, the files of a package manager with their contents, the kind, and the update command. `ROOT` is the
    /// directory of the fake system.
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

    const RECORD: &str =
        "../../../bin/adjutant,sha256=x,1\nadjutant_cli-0.2.0.dist-info/RECORD,,\n";

    const CASES: [Case; 16] = [
        (
            "usr/bin/adjutant",
            &[("var/lib/dpkg/info/adjutant.list", "/.\n/usr/bin\n/usr/bin/adjutant\n")],
            "debian",
            "sudo dpkg -i ./adjutant_*_amd64.deb",
        ),
        (
            "usr/local/bin/adjutant",
            &[("var/lib/dpkg/info/adjutant.list", "/usr/bin/adjutant\n")],
            "unknown",
            "",
        ),
        (
            "usr/lib/node_modules/adjutant-cli/bin/adjutant",
            &[],
            "npm",
            "npm install -g ./adjutant-cli-linux-x64-*.tgz ./adjutant-cli-[0-9]*.tgz",
        ),
        (
            "usr/lib/node_modules/adjutant-cli/node_modules/adjutant-cli-linux-x64/bin/adjutant",
            &[],
            "npm",
            "npm install -g ./adjutant-cli-linux-x64-*.tgz ./adjutant-cli-[0-9]*.tgz",
        ),
        (
            "home/me/app/node_modules/adjutant-cli-linux-x64/bin/adjutant",
            &[],
            "npm",
            "npm install --prefix ROOT/home/me/app ./adjutant-cli-linux-x64-*.tgz ./adjutant-cli-[0-9]*.tgz",
        ),
        (
            "venv/bin/adjutant",
            &[
                ("venv/bin/python3", ""),
                ("venv/lib/python3.13/site-packages/adjutant_cli-0.2.0.dist-info/RECORD", RECORD),
                (
                    "venv/lib/python3.13/site-packages/adjutant_cli-0.2.0.dist-info/INSTALLER",
                    "pip\n",
                ),
            ],
            "pip",
            "ROOT/venv/bin/python3 -m pip install --force-reinstall ./adjutant_cli-*.whl",
        ),
        (
            "usr/local/bin/adjutant",
            &[
                (
                    "usr/local/lib/python3.11/dist-packages/adjutant_cli-0.2.0.dist-info/RECORD",
                    RECORD,
                ),
                ("usr/lib/python3.11/EXTERNALLY-MANAGED", ""),
            ],
            "pip",
            "python3 -m pip install --break-system-packages --force-reinstall ./adjutant_cli-*.whl",
        ),
        (
            "home/me/.local/bin/adjutant",
            &[(
                "home/me/.local/lib/python3.11/site-packages/adjutant_cli-0.2.0.dist-info/RECORD",
                RECORD,
            )],
            "pip",
            "python3 -m pip install --user --force-reinstall ./adjutant_cli-*.whl",
        ),
        (
            "opt/node/lib/node_modules/adjutant-cli/bin/adjutant",
            &[],
            "npm",
            "npm install -g --prefix ROOT/opt/node ./adjutant-cli-linux-x64-*.tgz ./adjutant-cli-[0-9]*.tgz",
        ),
        (
            "home/me/.local/share/pipx/venvs/adjutant-cli/bin/adjutant",
            &[(
                "home/me/.local/share/pipx/venvs/adjutant-cli/lib/python3.13/site-packages/adjutant_cli-0.2.0.dist-info/RECORD",
                RECORD,
            )],
            "pipx",
            "pipx install --force ./adjutant_cli-*.whl",
        ),
        (
            "home/me/.local/share/uv/tools/adjutant-cli/bin/adjutant",
            &[
                ("home/me/.local/share/uv/tools/adjutant-cli/uv-receipt.toml", "[tool]\n"),
                (
                    "home/me/.local/share/uv/tools/adjutant-cli/lib/python3.13/site-packages/adjutant_cli-0.2.0.dist-info/RECORD",
                    RECORD,
                ),
            ],
            "uv tool",
            "uv tool install --reinstall ./adjutant_cli-*.whl",
        ),
        (
            "home/me/.cargo/bin/adjutant",
            &[(
                "home/me/.cargo/.crates.toml",
                "[v1]\n\"adjutant-cli 0.2.0 (path+file:///src/adjutant/crates/adjutant-cli)\" = [\"adjutant\"]\n",
            )],
            "cargo",
            "cargo install --locked --path /src/adjutant/crates/adjutant-cli",
        ),
        (
            "home/me/.cargo/bin/adjutant",
            &[(
                "home/me/.cargo/.crates.toml",
                "[v1]\n\"adjutant-cli 0.2.0 (git+https://example.org/adjutant?branch=main#1234)\" = [\"adjutant\"]\n",
            )],
            "cargo",
            "cargo install --locked --git https://example.org/adjutant adjutant-cli",
        ),
        (
            "home/me/.local/bin/adjutant",
            &[(
                "home/me/.local/share/adjutant/installed-files",
                "bin/adjutant\nshare/man/man1/adjutant.1\n",
            )],
            "installer",
            "sh install.sh --prefix ROOT/home/me/.local",
        ),
        (
            "src/adjutant/target/release/adjutant",
            &[("src/adjutant/crates/adjutant-cli/Cargo.toml", "")],
            "source",
            "cd ROOT/src/adjutant && git pull && cargo build --release",
        ),
        (
            // Another crate that cargo installed does not make this program cargo's.
            "home/me/.cargo/bin/adjutant",
            &[(
                "home/me/.cargo/.crates.toml",
                "[v1]\n\"ripgrep 14.0.0 (registry+https://example.org)\" = [\"rg\"]\n",
            )],
            "unknown",
            "",
        ),
    ];

    #[test]
    fn each_kind_of_installation_is_recognised_and_named_with_its_command() {
        for (program, files, kind, command) in CASES {
            let root = tempfile::TempDir::new().unwrap();
            let write = |name: &str, text: &str| {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write(program, "");
            files.iter().for_each(|(name, text)| write(name, text));
            let found = find_installation(root.path(), &root.path().join(program));
            let shown = found.update_command().unwrap_or_default();
            let shown = shown.replace(&root.path().display().to_string(), "ROOT");
            assert_eq!((found.word(), shown.as_str()), (kind, command), "{program}: {found:?}");
        }
    }

    #[test]
    fn a_program_without_a_directory_is_unknown() {
        assert_eq!(find_installation(Path::new("/"), Path::new("adjutant")), Installation::Unknown);
    }
}
