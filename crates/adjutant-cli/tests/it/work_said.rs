//! What a person is told about workspaces and work that are not as they might expect.

use crate::rig::{Output, Rig};
use crate::work_rig::Repo;

fn writes(label: &str) -> String {
    format!(
        "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = \"{label}\", content = \"new\\n\" }}\n\
         [[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n"
    )
}

fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(&["one", "two"].map(writes).concat()) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

fn delegate(repo: &Repo, flags: &[&str]) -> Output {
    let call = repo.rig.delegating(&["--write"]).args(flags);
    call.env("PATH", std::env::var_os("PATH").unwrap()).run()
}

#[test]
fn what_the_workspaces_lack_is_said_once_for_all_of_them() {
    let repo = repository();
    repo.rig.write("nested/file", "nested\n");
    repo.git(["init", "-q", "nested"]);
    let said = "repositories inside the repository are left out: nested";
    let two = ["-t", "one=Do it", "-t", "two=Do it"];
    for kind in ["overlay", "worktree"] {
        let out = delegate(&repo, &[&two[..], &["--workspace", kind]].concat());
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(out.stdout.matches(said).count(), 1, "{out}");
        assert_eq!(out.stderr.matches(said).count(), 1, "{out}");
        let json = delegate(&repo, &[&two[..], &["--workspace", kind, "--json"]].concat()).json();
        crate::schema::assert_fits("result", &json);
        assert_eq!(json["remarks"], serde_json::json!([said]), "{json}");
    }
    std::fs::remove_dir_all(repo.rig.work().join("nested")).unwrap();
    let plain = delegate(&repo, &two);
    assert!(!plain.stdout.contains("Not as in your tree"), "{plain}");
}
