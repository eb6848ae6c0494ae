//! What `docs/workspaces.md` tells people to type works as it stands, and does what the page says.

use std::fs;

use crate::docs::commands::{lines, repository, typed};
use crate::support::rig::Rig;

#[test]
fn every_command_of_the_page_works_in_the_order_it_is_shown() {
    let page = fs::read_to_string(repository().join("docs/workspaces.md")).unwrap();
    let rig = Rig::new();
    let read = |path: &str| fs::read_to_string(rig.work().join(path)).unwrap_or_default();
    let lines = lines(&page);
    assert!(lines.len() > 12, "{lines:?}");
    for line in lines {
        let (code, said) = typed(&rig, "workspaces.toml", line);
        assert_eq!(code, 0, "{line}\n{said}");
        let has = |words: &str| assert!(said.contains(words), "{line}: {words}\n{said}");
        let merged = read("list.txt").contains("two and a half");
        match line {
            "adjutant doctor" => {
                has("sandbox");
                has("workspaces");
            }
            "adjutant diff" => {
                has("+two and a half");
                has("+The list is for counting.");
                assert!(!said.contains("not committed yet"), "{said}");
            }
            "adjutant diff latest list.txt --stat" => has("list.txt"),
            "adjutant merge --dry-run" => {
                has("2 to merge");
                assert!(!merged);
            }
            "adjutant merge" => {
                assert!(merged);
                assert!(read("docs/notes.md").contains("counting"));
            }
            "adjutant merge --undo" => {
                assert!(!merged);
                assert_eq!(read("docs/notes.md"), "");
                assert_eq!(read("draft.txt"), "not committed yet\n");
            }
            "adjutant merge --as branch" => has("adjutant/run_"),
            "adjutant discard latest --yes" => has("discarded"),
            line if line.contains("--merge apply") => {
                assert!(merged, "{said}");
                assert_eq!(read("cache/entry"), "kept\n");
            }
            _ => {}
        }
    }
    rig.assert_unharmed();
}
