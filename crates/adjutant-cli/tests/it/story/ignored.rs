//! Files that git ignores by rules of the user reach no agent and no branch.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::project::{Project, done, one_story, runs};

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// What the patterns name: a file of the user's, and files that an agent makes.
const PATTERNS: &str = ".env\n*.made\n";

/// A pattern that matches nothing here.
const OTHER: &str = "*.other\n";

/// One way to tell git what it ignores, besides the files of the tree.
struct Way {
    name: &'static str,
    /// Files below the place of the test; `@` stands for that place.
    files: &'static [(&'static str, &'static str)],
    /// Environment variables, with the same meaning of `@`; `None` unsets a variable.
    variables: &'static [(&'static str, Option<&'static str>)],
    is_ignored: bool,
}

const NO_XDG: &[(&str, Option<&str>)] = &[("XDG_CONFIG_HOME", None)];

const WAYS: [Way; 18] = [
    Way {
        name: "home, with a path below it",
        files: &[("home/.gitconfig", "[core]\n\texcludesFile = ~/own"), ("home/own", PATTERNS)],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "home, in other letters and quoted",
        files: &[("home/.gitconfig", "[CORE]\nEXCLUDESFILE = \"@/own\""), ("own", PATTERNS)],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "XDG",
        files: &[("xdg/git/config", "[core]\n\texcludesFile = @/own"), ("own", PATTERNS)],
        variables: &[("XDG_CONFIG_HOME", Some("@/xdg"))],
        is_ignored: true,
    },
    Way {
        name: "XDG at its usual place",
        files: &[("home/.config/git/config", "[core]\nexcludesFile = @/own"), ("own", PATTERNS)],
        variables: NO_XDG,
        is_ignored: true,
    },
    Way {
        name: "the named global file",
        files: &[("global", "[core]\n\texcludesFile = @/own"), ("own", PATTERNS)],
        variables: &[("GIT_CONFIG_GLOBAL", Some("@/global"))],
        is_ignored: true,
    },
    Way {
        name: "home, in the place of which another file is named",
        files: &[
            ("home/.gitconfig", "[core]\n\texcludesFile = @/own"),
            ("own", PATTERNS),
            ("global", ""),
        ],
        variables: &[("GIT_CONFIG_GLOBAL", Some("@/global"))],
        is_ignored: false,
    },
    Way {
        name: "the system",
        files: &[("system", "[core]\n\texcludesFile = @/own"), ("own", PATTERNS)],
        variables: &[
            ("GIT_CONFIG_SYSTEM", Some("@/system")),
            ("GIT_CONFIG_NOSYSTEM", Some("false")),
        ],
        is_ignored: true,
    },
    Way {
        name: "the system, switched off",
        files: &[("system", "[core]\n\texcludesFile = @/own"), ("own", PATTERNS)],
        variables: &[("GIT_CONFIG_SYSTEM", Some("@/system"))],
        is_ignored: false,
    },
    Way {
        name: "the repository",
        files: &[("config", "[core]\n\texcludesFile = ~/own"), ("home/own", PATTERNS)],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "the repository, relative to its top",
        files: &[("config", "[core]\n\texcludesFile = .git/own"), ("work/.git/own", PATTERNS)],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "the usual file",
        files: &[("xdg/git/ignore", PATTERNS)],
        variables: &[("XDG_CONFIG_HOME", Some("@/xdg"))],
        is_ignored: true,
    },
    Way {
        name: "the usual file at its usual place",
        files: &[("home/.config/git/ignore", PATTERNS)],
        variables: NO_XDG,
        is_ignored: true,
    },
    Way {
        name: "an included file",
        files: &[
            ("home/.gitconfig", "[include]\n\tpath = more"),
            ("home/more", "[core]\n\texcludesFile = ~/own"),
            ("home/own", PATTERNS),
        ],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "a file included for this repository",
        files: &[
            ("home/.gitconfig", "[includeIf \"gitdir:@/work/\"]\n\tpath = more"),
            ("home/more", "[core]\n\texcludesFile = ~/own"),
            ("home/own", PATTERNS),
        ],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "home over XDG",
        files: &[
            ("home/.config/git/config", "[core]\n\texcludesFile = @/other"),
            ("home/.gitconfig", "[core]\n\texcludesFile = @/own"),
            ("own", PATTERNS),
            ("other", OTHER),
        ],
        variables: &[],
        is_ignored: true,
    },
    Way {
        name: "the repository over home",
        files: &[
            ("home/.gitconfig", "[core]\n\texcludesFile = @/own"),
            ("config", "[core]\n\texcludesFile = @/other"),
            ("own", PATTERNS),
            ("other", OTHER),
        ],
        variables: &[],
        is_ignored: false,
    },
    Way {
        name: "an empty value, which switches the usual file off",
        files: &[
            ("home/.gitconfig", "[core]\n\texcludesFile ="),
            ("home/.config/git/ignore", PATTERNS),
        ],
        variables: &[],
        is_ignored: false,
    },
    Way {
        name: "a file that is not there, instead of the usual one",
        files: &[
            ("home/.gitconfig", "[core]\n\texcludesFile = @/missing"),
            ("home/.config/git/ignore", PATTERNS),
        ],
        variables: &[],
        is_ignored: false,
    },
];

impl Way {
    fn variables(&self, project: &Project) -> Vec<(&'static str, Option<String>)> {
        let place = project.rig().path().display().to_string();
        let no_system = [("GIT_CONFIG_NOSYSTEM", Some("1"))];
        let all = no_system.iter().chain(self.variables);
        all.map(|(name, value)| (*name, value.map(|value| value.replace('@', &place)))).collect()
    }

    fn put(&self, project: &Project) {
        let place = project.rig().path();
        let here = place.display().to_string();
        for (name, text) in self.files {
            let text = format!("{}\n", text.replace('@', &here));
            if *name == "config" {
                append(project, &text);
                continue;
            }
            let path = place.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// What git itself says of the user's file.
    fn git_ignores(&self, project: &Project) -> bool {
        let mut git = Command::new("git");
        git.args(["check-ignore", "-q", ".env"]).current_dir(project.rig().work());
        git.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        git.envs(project.rig().environment());
        for (name, value) in self.variables(project) {
            match value {
                Some(value) => git.env(name, value),
                None => git.env_remove(name),
            };
        }
        let code = git.status().unwrap().code();
        assert!(matches!(code, Some(0 | 1)), "{}: {code:?}", self.name);
        code == Some(0)
    }
}

/// Adds to the repository's own configuration.
fn append(project: &Project, text: &str) {
    let config = project.rig().work().join(".git/config");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(config, before + text).unwrap();
}

/// A clean tree but for one file; its agent looks at everything and makes another one.
fn project() -> Project {
    let look = "{ ls -a; cat .env || true; } > seen; echo built > fresh.made";
    let turns: [Value; 2] = [runs("US-001", look), done("US-001")];
    let project = Project::new(&one_story(), turns);
    project.rig().write(".env", "KEY=hush\n");
    project
}

/// Every path that a commit of the repository has.
fn paths(project: &Project) -> Vec<String> {
    let listed = project.repo.git(["log", "--all", "-m", "--format=", "--name-only"]);
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn files_that_git_ignores_reach_no_agent() {
    for way in &WAYS {
        for kind in KINDS {
            let project = project();
            way.put(&project);
            assert_eq!(way.git_ignores(&project), way.is_ignored, "{}", way.name);
            let mut call = project.working(&["--workspace", kind, "--enable-delegation"]);
            for (name, value) in way.variables(&project) {
                call = match value {
                    Some(value) => call.env(name, value),
                    None => call.env_remove(name),
                };
            }
            let out = call.run();
            let at = format!("{}, {kind}", way.name);
            assert_eq!(out.code, 0, "{at}: {out}");
            let seen = project.repo.git(["show", "adjutant/US-001:seen"]);
            let (is_seen, is_told) = (seen.contains(".env"), seen.contains("hush"));
            assert_eq!((is_seen, is_told), (!way.is_ignored, !way.is_ignored), "{at}: {seen}");
            let paths = paths(&project);
            for file in [".env", "fresh.made"] {
                assert_eq!(paths.iter().any(|it| it == file), !way.is_ignored, "{at}: {paths:?}");
            }
        }
    }
}

#[test]
fn ignore_patterns_in_a_pipe_or_device_do_not_block() {
    let pipe = |project: &Project| {
        let path = project.rig().path().join("pipe");
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path.display().to_string()
    };
    for kind in KINDS {
        for device in [None, Some("/dev/zero"), Some("/dev/tty"), Some("/proc/kmsg")] {
            let project = project();
            let named = device.map_or_else(|| pipe(&project), str::to_owned);
            append(&project, &format!("[core]\n\texcludesFile = {named}\n"));
            let out = project.story(&["--workspace", kind]);
            assert_eq!(out.code, 0, "{kind}, {named}: {out}");
            assert!(paths(&project).contains(&"seen".to_owned()), "{kind}, {named}");
        }
    }
}

#[test]
fn an_unreadable_git_configuration_copies_nothing() {
    let project = project();
    let config = project.rig().home().join(".gitconfig");
    fs::write(&config, "[core]\n\texcludesFile\n").unwrap();
    let out = project.story(&[]);
    assert_ne!(out.code, 0, "{out}");
    assert!(out.stderr.contains("bad config line 2") && out.stderr.contains(".gitconfig"), "{out}");
    fs::remove_file(config).unwrap();
    assert!(!paths(&project).contains(&".env".to_owned()));
}
