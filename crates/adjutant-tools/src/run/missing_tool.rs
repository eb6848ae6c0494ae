//! Explains why a program was not found in the sandbox, and what would make it available.
//!
//! Start at [`explain`]. It knows common compilers, interpreters and package managers; about any other program it says
//! nothing.

/// What a person decided about the toolchains of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolAvailability {
    /// Whether all toolchains are switched off.
    pub all_off: bool,
    /// The names of toolchains that are switched off, such as `node (nvm)` or `node`.
    pub off: Vec<String>,
    /// The names of the toolchains that commands see.
    pub found: Vec<String>,
}

/// Programs that come with the same toolchains.
struct KnownPrograms {
    programs: &'static [&'static str],
    language: &'static str,
    /// The toolchains that have them; `node` means every one whose name begins with it.
    toolchains: &'static [&'static str],
    /// Where toolchains are looked for.
    searched: &'static str,
}

static KNOWN: [KnownPrograms; 6] = [
    KnownPrograms {
        programs: &["cargo", "rustc", "rustup", "rustfmt", "rustdoc", "cargo-clippy"],
        language: "Rust",
        toolchains: &["rust", "cargo", "mise", "asdf"],
        searched: "~/.rustup, ~/.cargo",
    },
    KnownPrograms {
        programs: &["node", "npm", "npx", "yarn", "pnpm", "corepack"],
        language: "Node",
        toolchains: &["node", "mise", "asdf"],
        searched: "the directories of nvm, fnm, Volta, mise and asdf, your PATH",
    },
    KnownPrograms {
        programs: &["python", "python3", "pip", "pip3", "pytest", "uv", "uvx"],
        language: "Python",
        toolchains: &["python", "uv", "mise", "asdf"],
        searched: "the directories of pyenv, uv, mise and asdf",
    },
    KnownPrograms {
        programs: &["go", "gofmt"],
        language: "Go",
        toolchains: &["go", "mise", "asdf"],
        searched: "GOROOT, /usr/local/go, ~/sdk, your PATH",
    },
    KnownPrograms {
        programs: &["java", "javac", "mvn", "gradle"],
        language: "Java",
        toolchains: &["mise", "asdf"],
        searched: "the directories of mise and asdf",
    },
    KnownPrograms {
        programs: &[
            "cc",
            "c++",
            "gcc",
            "g++",
            "clang",
            "clang++",
            "make",
            "cmake",
            "ninja",
            "pkg-config",
            "perl",
            "ruby",
            "gem",
            "bundle",
        ],
        language: "",
        toolchains: &["mise", "asdf"],
        searched: "the directories of mise and asdf",
    },
];

/// The characters of output, from its end, that are searched for the shell's message.
const SEARCHED_BYTES: usize = 16 * 1024;

/// Returns why a known program was not found, from the output of a command that failed.
pub(super) fn explain(output: &str, availability: &ToolAvailability) -> Option<String> {
    let start = output.ceil_char_boundary(output.len().saturating_sub(SEARCHED_BYTES));
    let (program, known) = output[start..].lines().find_map(missing_program)?;
    let sentence = format!("`{program}` was not found in the sandbox");
    if availability.all_off {
        return Some(format!("{sentence}: toolchains are switched off (--no-toolchains)"));
    }
    let belongs = |name: &str| {
        let family = name.split_once(" (").map_or(name, |(family, _)| family);
        known.toolchains.contains(&family)
    };
    if let Some(off) = availability.off.iter().find(|it| belongs(it)) {
        return Some(format!("{sentence}: the toolchain `{off}` is switched off"));
    }
    if let Some(found) = availability.found.iter().find(|it| belongs(it) && is_of(known, it)) {
        return Some(format!(
            "{sentence}: the toolchain `{found}` is there, but does not contain it; a person can grant another \
             with --grant DIR"
        ));
    }
    let KnownPrograms { language, searched, .. } = known;
    Some(if language.is_empty() {
        format!("{sentence}: it is not installed on this machine, or not in a system directory")
    } else {
        format!(
            "{sentence}: no {language} toolchain was found in {searched} or the system; a person can grant one \
             with --grant DIR"
        )
    })
}

/// Returns whether a toolchain is for this language alone; that mise is there says nothing about a program.
fn is_of(known: &KnownPrograms, toolchain: &str) -> bool {
    !["mise", "asdf"].contains(&toolchain) && !known.language.is_empty()
}

/// Returns the known program that a line of a shell, of `env` or of make says is missing.
fn missing_program(line: &str) -> Option<(&'static str, &'static KnownPrograms)> {
    let line = line.trim_end();
    // `sh: 1: cargo: not found`, `bash: line 1: cargo: command not found`, `env: 'node': No such file or directory`
    let endings = [": not found", ": command not found"];
    let of_shell = endings.iter().find_map(|ending| line.strip_suffix(ending));
    // `cat: go: No such file or directory` is about a file.
    let is_launcher = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        ["env", "make"].iter().any(|it| name.ends_with(it) || name.starts_with("make["))
    };
    let of_launcher = || line.strip_suffix(": No such file or directory").filter(is_launcher);
    let rest = of_shell.or_else(of_launcher)?;
    let word = rest.rsplit(": ").next()?.trim_matches(['\'', '"', '‘', '’', '`']);
    KNOWN.iter().find_map(|known| {
        let program = known.programs.iter().find(|program| **program == word)?;
        Some((*program, known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_env_and_make_say_which_program_is_missing() {
        for (line, program) in [
            ("/bin/sh: 1: cargo: not found", Some("cargo")),
            ("sh: 12: python3: not found", Some("python3")),
            ("bash: line 1: go: command not found", Some("go")),
            ("/usr/bin/env: ‘node’: No such file or directory", Some("node")),
            ("env: 'node': No such file or directory", Some("node")),
            ("make: cmake: No such file or directory", Some("cmake")),
            ("/bin/sh: 1: frobnicate: not found", None),
            ("make[1]: gcc: No such file or directory", Some("gcc")),
            ("cat: go: No such file or directory", None),
            ("error: package `cargo` not found", None),
            (": not found", None),
            ("", None),
        ] {
            assert_eq!(missing_program(line).map(|it| it.0), program, "{line}");
        }
    }

    #[test]
    fn the_reason_depends_on_what_is_switched_off_and_found() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let explained = |program: &str, all_off: bool, off: &[&str], found: &[&str]| {
            let output = format!("building\n/bin/sh: 1: {program}: not found\n");
            let availability = ToolAvailability { all_off, off: names(off), found: names(found) };
            explain(&output, &availability).unwrap()
        };
        insta::assert_snapshot!(explained("cargo", false, &[], &[]), @"`cargo` was not found in the sandbox: no Rust toolchain was found in ~/.rustup, ~/.cargo or the system; a person can grant one with --grant DIR");
        insta::assert_snapshot!(explained("cargo", true, &[], &[]), @"`cargo` was not found in the sandbox: toolchains are switched off (--no-toolchains)");
        insta::assert_snapshot!(explained("npm", false, &["go", "node (nvm)"], &["rust"]), @"`npm` was not found in the sandbox: the toolchain `node (nvm)` is switched off");
        insta::assert_snapshot!(explained("pytest", false, &[], &["mise", "python (pyenv)"]), @"`pytest` was not found in the sandbox: the toolchain `python (pyenv)` is there, but does not contain it; a person can grant another with --grant DIR");
        insta::assert_snapshot!(explained("cmake", false, &[], &["mise"]), @"`cmake` was not found in the sandbox: it is not installed on this machine, or not in a system directory");
        assert_eq!(explain("exit 1", &ToolAvailability::default()), None);
    }
}
