//! A verify command that fills the disk and fails: the work it judged is not lost.

use serde_json::json;

use crate::state::full_disk::{NAMESPACE, may_mount, shell};
use crate::support::project::{Project, done, writes};

/// Works on the story, frees the disk and prunes.
const STEPS: &str = r#"
    mount -t tmpfs -o size=40m,mode=700 none "$ADJUTANT_HOME" || exit 99
    "$ADJUTANT" story prd.json --yes --model script:../script.json --trust-prd --workspace KIND >../out 2>../err
    echo "story $?"
    mount -o remount,size=200m "$ADJUTANT_HOME" || exit 98
    "$ADJUTANT" prune >../pruned 2>&1
    echo "prune $?"
    for ref in $(git for-each-ref --format='%(refname)' refs/adjutant | grep -v _bases); do
        git cat-file -p $ref:greet.sh
    done
"#;

#[test]
fn a_command_that_fills_the_disk_and_fails_costs_no_work() {
    let verify = "rm greet.sh; dd if=/dev/zero of=fill.o bs=1M count=100; false";
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Greet", "verify": verify, "passes": false },
    ] });
    for kind in ["overlay", "worktree"] {
        let mut last = done("US-001");
        last["times"] = json!("forever");
        let turns = [writes("US-001", "greet.sh", "echo hello\n"), last];
        let project = Project::new(&prd, turns);
        project.rig().write(".gitignore", "*.o\n");
        if !may_mount(project.rig()) {
            return;
        }
        let out = shell(project.rig(), &NAMESPACE, &STEPS.replace("KIND", kind));
        let read = |name: &str| {
            std::fs::read_to_string(project.rig().path().join(name)).unwrap_or_default()
        };
        let told = ["out", "err", "pruned"].map(read);
        let lines: Vec<&str> = out.stdout.lines().collect();
        assert_eq!(lines, ["story 3", "prune 0", "echo hello"], "{kind}: {out}\n{told:#?}");
        assert!(told[0].contains("does not pass"), "{kind}: {told:#?}");
    }
}
