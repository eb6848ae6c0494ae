//! No relative link or anchor of the documents is broken, and the summary of the guide names every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::docs::commands::repository;
use crate::docs::pages::{pages, read};

const ROOT_DOCUMENTS: [&str; 5] =
    ["CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "ROADMAP.md"];

/// The lines of a page outside of fenced blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The anchors that GitHub and mdBook make of the headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let kept = |it: &char| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_');
        let text = line.trim_start_matches('#').trim().to_lowercase();
        text.chars().filter(kept).map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    headings.map(anchor).collect()
}

/// The targets of the links of a page. Code spans do not count.
fn targets(page: &str) -> Vec<String> {
    let text: Vec<&str> = prose(page).collect();
    let text = text.join("\n");
    let outside_code: String = text.split('`').step_by(2).collect::<Vec<_>>().join("code");
    let after = outside_code.split("](").skip(1);
    after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

#[test]
fn no_link_is_broken() {
    let mut broken = Vec::new();
    let mut count = 0;
    for name in pages().into_iter().chain(ROOT_DOCUMENTS.map(str::to_owned)) {
        let page = read(&name);
        for target in targets(&page).iter().filter(|it| !it.starts_with("http")) {
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = repository().join(&name);
            let path = if file.is_empty() { path } else { path.parent().unwrap().join(file) };
            let leaves_the_book = name.starts_with("docs/")
                && !path.canonicalize().is_ok_and(|it| it.starts_with(docs_folder()));
            let has_anchor = || {
                anchor.is_empty()
                    || fs::read_to_string(&path).is_ok_and(|it| anchors(&it).contains(anchor))
            };
            // mdBook makes index.html of a README.md, but does not change the links to it.
            let is_renamed = name.starts_with("docs/")
                && name != "docs/SUMMARY.md"
                && file.ends_with("README.md");
            if !path.exists() || leaves_the_book || is_renamed || !has_anchor() {
                broken.push(format!("{name}: {target}"));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    println!("{count} links");
    assert!(count > 60, "{count}");
}

fn docs_folder() -> std::path::PathBuf {
    repository().join("docs").canonicalize().unwrap()
}

#[test]
fn the_summary_names_every_page() {
    let listed: BTreeSet<String> = targets(&read("docs/SUMMARY.md")).into_iter().collect();
    let pages = pages().into_iter().filter_map(|it| Some(it.strip_prefix("docs/")?.to_owned()));
    let expected: BTreeSet<String> = pages.filter(|it| it != "SUMMARY.md").collect();
    assert_eq!(listed, expected);
    assert!(Path::new(&docs_folder()).join("book.toml").is_file());
}
