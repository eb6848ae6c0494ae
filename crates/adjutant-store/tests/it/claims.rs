//! Claims: one holder at a time, whoever asks how often, and none left behind.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use adjutant_store::LockError;

use crate::rig::Rig;

#[test]
fn a_second_claim_is_refused_with_the_name_of_the_holder() {
    let rig = Rig::new();
    let claim = rig.home.claim(b"a story").unwrap();
    let us = std::process::id();
    let error = rig.home.claim(b"a story").unwrap_err();
    assert!(matches!(error, LockError::Held { pid: Some(pid) } if pid == us), "{error}");
    let other = rig.home.claim(b"another story").unwrap();
    drop(claim);
    drop(rig.home.claim(b"a story").unwrap());
    drop(other);
    let left = fs::read_dir(rig.dir.path().join("state/claims")).unwrap();
    assert_eq!(left.count(), 0, "a claim that was given back leaves no file");
}

#[test]
fn however_many_come_and_go_one_holds_the_claim() {
    const MANY: usize = 8;
    let rig = Rig::new();
    let (held, won) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(MANY);
    thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..50 {
                    // The file of a claim goes with it, so each of them may meet one that is gone.
                    let Ok(claim) = rig.home.claim(b"a story") else { continue };
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0);
                    won.fetch_add(1, Ordering::SeqCst);
                    held.fetch_sub(1, Ordering::SeqCst);
                    drop(claim);
                }
            });
        }
    });
    assert!(won.into_inner() > 0);
}

#[test]
fn what_a_killed_holder_left_is_in_nobodys_way() {
    let rig = Rig::new();
    drop(rig.home.claim(b"a story").unwrap());
    let folder = rig.dir.path().join("state/claims");
    let name = adjutant_core::content_hash(b"a story");
    // A file that nobody has locked says nothing, whatever is in it.
    for text in ["", "{\"pid\":1,\"boot\":\"x\",\"start\":1,\"since\":null,\"released\":false}"] {
        fs::write(folder.join(&name), text).unwrap();
        drop(rig.home.claim(b"a story").unwrap());
    }
}

#[test]
fn looking_at_a_claim_never_keeps_a_process_from_taking_it() {
    const CLAIMS: usize = 300;
    let rig = Rig::new();
    assert!(!rig.home.is_claimed(b"a story").unwrap(), "there is no file yet");
    let is_over = AtomicBool::new(false);
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let is_claimed = rig.home.is_claimed(b"a story").unwrap();
                    seen.fetch_add(usize::from(is_claimed), Ordering::SeqCst);
                }
            });
        }
        let claimed = (0..CLAIMS).map(|_| rig.home.claim(b"a story").map(drop));
        let claimed: Result<Vec<()>, LockError> = claimed.collect();
        let held = rig.home.claim(b"a story");
        let before = seen.load(Ordering::SeqCst);
        while held.is_ok() && seen.load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
        is_over.store(true, Ordering::SeqCst);
        claimed.unwrap();
        held.unwrap();
    });
    assert!(!rig.home.is_claimed(b"a story").unwrap(), "it was given back");
}
