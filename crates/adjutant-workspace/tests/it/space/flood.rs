//! Programs that write what nobody can keep: the rest of their work is kept all the same.

use adjutant_workspace::SkipReason;
use adjutant_workspace::sandbox::End;

use super::*;

#[test]
fn a_folder_far_down_and_files_of_mere_size_do_not_lose_the_work() {
    for (wish, kind) in KINDS {
        let user = user();
        let spaces = open(&user, wish);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let text = "echo x > kept; truncate -s 700000000 huge; mkdir -p d/e && echo y > d/e/f";
        let (ended, said) = run(&space, text);
        assert_eq!(ended.end, End::Exited(0), "{said}");
        let deep: String = "n/".repeat(300);
        let text = format!("mkdir -p {deep} && echo z > {deep}bottom");
        assert_eq!(run(&space, &text).0.end, End::Exited(0));
        let kept = space.keep("work\n", now()).unwrap();
        let shown = contents(&user, &kept.commit.unwrap());
        assert_eq!(shown["kept"], "x\n", "{kind}");
        assert_eq!(shown["d/e/f"], "y\n", "{kind}");
        assert!(!shown.contains_key("huge") && !shown.keys().any(|path| path.ends_with("bottom")));
        let reason = |wanted: SkipReason| kept.skipped.iter().any(|it| it.reason == wanted);
        assert!(reason(SkipReason::TooLarge(700_000_000)), "{kind}: {:?}", kept.skipped);
        assert!(reason(SkipReason::TooDeep), "{kind}: {:?}", kept.skipped);
        space.close().unwrap();
    }
}
