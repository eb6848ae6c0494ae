//! What `docs/stories.md` tells people to type works as it stands, and what it quotes is true.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use adjutant_formats::prd::Prd;

use crate::docs::commands::{blocks, lines, repository};
use crate::support::rig::{BINARY, Rig};

fn page() -> String {
    fs::read_to_string(repository().join("docs/stories.md")).unwrap()
}

/// Runs a line as a shell does, with `$REPO` and nothing else but what a rig has.
pub(crate) fn typed(rig: &Rig, line: &str) -> (i32, String) {
    let programs = Path::new(BINARY).parent().unwrap().display();
    let out = Command::new("sh")
        .args(["-c", line])
        .env_clear()
        .envs(rig.environment())
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("REPO", repository())
        .env("TMPDIR", rig.home())
        .current_dir(rig.work())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (out.status.code().unwrap(), String::from_utf8([out.stdout, out.stderr].concat()).unwrap())
}

#[test]
fn every_command_of_the_page_works_in_the_order_it_is_shown() {
    let (rig, page) = (Rig::new(), page());
    let read = |path: &str| fs::read_to_string(rig.work().join(path)).unwrap_or_default();
    let lines = lines(&page);
    assert!(lines.len() > 15, "{lines:?}");
    for line in lines {
        let (code, said) = typed(&rig, line);
        assert_eq!(code, 0, "{line}\n{said}");
        let has = |words: &str| assert!(said.contains(words), "{line}: {words}\n{said}");
        match line {
            line if line.contains("/try ") => has("passes, verified"),
            line if line.starts_with("adjutant story") => {
                has("2 of 2 stories pass: in=15,000 out=1,500 · $0.0675");
                has("adjutant/US-002");
            }
            "adjutant status" => has("US-001 Log in"),
            "adjutant status --tree" => has("US-002 [Log out]"),
            "adjutant cost" => has("$0.0135"),
            "git log --oneline --all" => has("US-001"),
            "adjutant diff --stat" => has("ui/login.html"),
            "adjutant merge" => assert!(read("ui/login.html").contains("Log out")),
            "adjutant merge --undo" => assert!(!read("ui/login.html").contains("Log out")),
            line if line.contains("adjutant parse") => {
                has("US-007-DEL-001");
                has("three");
            }
            line if line.contains("policy explain") => has("--enable-delegation"),
            _ => {}
        }
    }
    rig.assert_unharmed();
}

#[test]
fn the_prd_of_the_page_is_valid() {
    let page = page();
    let [text] = blocks(&page, "json")[..] else { panic!("one PRD is shown") };
    let prd = Prd::read(text).unwrap();
    assert_eq!(prd.warnings(), [], "{text}");
    let order: Vec<&str> = prd.order().unwrap().iter().map(|it| it.id.as_str()).collect();
    assert_eq!(order, ["US-001", "US-002"]);
}

#[test]
fn every_flag_in_the_tables_exists() {
    let (rig, page) = (Rig::new(), page());
    let help = rig.run(["story", "--help"]).stdout;
    let rows = page.lines().filter(|line| line.starts_with("| `--"));
    let cells: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap()).collect();
    assert!(cells.len() > 8, "{cells:?}");
    for flag in cells.iter().flat_map(|cell| cell.split('`')).filter(|it| it.starts_with("--")) {
        let name = flag.split(' ').next().unwrap();
        assert!(help.contains(name), "{name}\n{help}");
    }
}

#[test]
fn the_errors_quoted_on_the_page_are_in_the_source() {
    let page = page();
    let source = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let said = source("crates/adjutant-core/src/refusal.rs")
        + &source("crates/adjutant-core/src/tree/workspaces.rs");
    for words in [
        "ERROR: Delegation depth limit (",
        "ERROR: Agent context budget (",
        "ERROR: Delegation cycle detected.",
        "ERROR: Failed to create child worktree for delegation.",
        "Delegation is disabled",
        "Too many delegations",
    ] {
        assert!(page.contains(&format!("**`{words}")), "{words}");
        assert!(said.contains(words), "{words}");
    }
}
