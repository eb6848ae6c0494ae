//! A disk that is full when work is committed: the work stays in its workspace until there is space.

use std::fs;

use crate::state::full_disk::{NAMESPACE, may_mount, shell};
use crate::support::rig::Rig;

/// Makes more than there is room for among the objects of the repository, which cannot be packed smaller.
const SCRIPT: &str = r#"
    [[turn]]
    label = "one"
    [[turn.call]]
    tool = "Run"
    args = { command = "head -c 3000000 /dev/urandom >big; cksum <big >sum" }
    [[turn]]
    label = "one"
    text = "done"
    [[turn]]
    label = "two"
    text = "done"
"#;

/// Delegates on a full disk, does `between`, frees room and prunes.
const STEPS: &str = r#"
    git init -q -b main . && git add -A || exit 90
    git -c user.name=U -c user.email=u@localhost commit -q -m first || exit 91
    cp -a .git ../git && mount -t tmpfs -o size=1m none .git && cp -a ../git/. .git || exit 92
    delegate() { "$ADJUTANT" delegate --yes --model script:../script.toml "$@"; }
    delegate --write --workspace KIND -t one=x >../out 2>../err
    echo "delegate $?"
    find .git/objects -name 'tmp_*' >../unfinished
    mount -o remount,size=64m .git || exit 93
    BETWEEN
    "$ADJUTANT" prune >../pruned 2>&1
    echo "prune $?"
    for ref in $(git for-each-ref --format='%(refname)' refs/adjutant | grep -v _bases); do
        git cat-file -p $ref:big | cksum >../big
        git cat-file -p $ref:sum | cmp - ../big && echo whole
    done
"#;

/// Returns what was told, after the work was found whole.
fn found_again(kind: &str, between: &str) -> Option<[String; 3]> {
    let rig = Rig::with_script(SCRIPT);
    if !may_mount(&rig) {
        return None;
    }
    rig.write("list", "line\n");
    let steps = STEPS.replace("KIND", kind).replace("BETWEEN", between);
    let out = shell(&rig, &NAMESPACE, &steps);
    let read = |name: &str| fs::read_to_string(rig.path().join(name)).unwrap_or_default();
    let told = ["out", "err", "pruned"].map(read);
    let lines: Vec<&str> = out.stdout.lines().collect();
    assert_eq!(lines, ["delegate 3", "prune 0", "whole"], "{kind}: {out}\n{told:#?}");
    assert_eq!(read("unfinished"), "", "{kind}: git left what it could not finish");
    Some(told)
}

#[test]
fn a_full_disk_while_work_is_committed_loses_no_work() {
    for kind in ["overlay", "worktree"] {
        let Some([out, err, pruned]) = found_again(kind, "") else { return };
        for told in [out, err] {
            assert!(told.contains("its work could not be committed"), "{kind}: {told}");
            assert!(told.contains("`adjutant prune` commits it"), "{kind}: {told}");
        }
        assert!(
            pruned.contains("kept the work that was left in refs/adjutant/run_"),
            "{kind}: {pruned}"
        );
    }
}

#[test]
fn uncommitted_work_is_found_without_the_journal_of_its_run() {
    let forget = r#"rm -r "$ADJUTANT_HOME"/runs/run_* && delegate -t two=y >/dev/null 2>&1"#;
    found_again("overlay", forget);
}

#[test]
fn every_command_about_uncommitted_work_names_it() {
    // The run before it kept something, and is not to be taken in its place.
    let ask = r#"
        ask() { "$ADJUTANT" "$@" >../asked 2>&1; echo "$1 $?" >>../codes; cat ../asked >>../told; echo "== $1" >>../told; }
        ask diff; ask merge; ask discard latest --yes; ask resume --yes
    "#;
    let rig = Rig::with_script(&format!("{EARLIER}{SCRIPT}"));
    if !may_mount(&rig) {
        return;
    }
    rig.write("list", "line\n");
    let steps = STEPS.replace("KIND", "overlay").replace("BETWEEN", ask);
    let earlier = r#"delegate --write -t early=x >/dev/null 2>&1 || exit 94
    delegate --write --workspace overlay -t one=x"#;
    let steps = steps.replace("delegate --write --workspace overlay -t one=x", earlier);
    let out = shell(&rig, &NAMESPACE, &steps);
    let read = |name: &str| fs::read_to_string(rig.path().join(name)).unwrap_or_default();
    let (codes, told) = (read("codes"), read("told"));
    assert_eq!(codes, "diff 3\nmerge 3\ndiscard 3\nresume 3\n", "{out}\n{told}");
    for part in told.split_inclusive("== ").filter(|part| part.contains("adjutant")) {
        assert!(part.contains("could not be committed"), "{part}");
        assert!(part.contains("`adjutant prune` commits it"), "{part}");
        assert!(!part.contains("has no results"), "{part}");
        assert!(!part.contains("early"), "{part}");
    }
}

/// Keeps a little before the disk is full.
const EARLIER: &str = r#"
    [[turn]]
    label = "early"
    [[turn.call]]
    tool = "Write"
    args = { file_path = "early", content = "early" }
    [[turn]]
    label = "early"
    text = "done"
"#;
