//! What checking a path before opening it would lose.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{Tree, rel};

/// Swaps a directory for a link that leads out, atomically and as fast as it can.
#[test]
fn a_directory_flipped_to_an_outward_link_never_leads_out() {
    let tree = Tree::new();
    tree.write("flip/file", "inside");
    std::fs::create_dir(tree.outer.path().join("away")).unwrap();
    std::fs::write(tree.outer.path().join("away/file"), "outside").unwrap();
    tree.link("../away", "other");
    let (flip, other) = (tree.path("flip"), tree.path("other"));
    let done = AtomicBool::new(false);
    let (mut inside, mut escaped) = (0_u32, 0_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &flip, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for index in 0..20_000 {
            let path = if index % 2 == 0 { "flip/file" } else { "flip/../flip/file" };
            if let Ok(opened) = tree.root.open_file(&rel(path)) {
                match std::io::read_to_string(opened.file).unwrap().as_str() {
                    "inside" => inside += 1,
                    _ => escaped += 1,
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(escaped, 0);
    assert!(inside > 0, "the race was never won by the directory, so nothing was tested");
}
