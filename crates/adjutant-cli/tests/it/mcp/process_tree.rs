//! Runs are not in the process tree of the server that began them: clients such as opencode kill that
//! whole tree when they exit.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::mcp::begin::carrier;
use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;

/// One line of `/proc/PID/stat`.
struct ProcessInfo {
    pid: u32,
    parent: u32,
    group: u32,
    session: u32,
}

/// Returns the processes of this machine.
fn processes() -> Vec<ProcessInfo> {
    let folders = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let pids = folders.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let read = |pid| {
        // A process may end while the list is read.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program may have blanks and brackets; the fields begin behind it.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |nth: usize| fields.get(nth)?.parse().ok();
        Some(ProcessInfo { pid, parent: field(1)?, group: field(2)?, session: field(3)? })
    };
    pids.filter_map(read).collect()
}

/// Returns a process and all that belongs to it: descendants, and the members of process groups and sessions
/// that one of them leads.
fn process_tree(root: u32) -> BTreeSet<u32> {
    let all = processes();
    let mut tree = BTreeSet::from([root]);
    loop {
        let belongs = |it: &&ProcessInfo| {
            [it.parent, it.group, it.session].iter().any(|id| tree.contains(id))
        };
        let more: Vec<_> = all.iter().filter(belongs).map(|it| it.pid).collect();
        let before = tree.len();
        tree.extend(more);
        if tree.len() == before {
            return tree;
        }
    }
}

fn kill_all(tree: &BTreeSet<u32>) {
    for pid in tree {
        let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        // One of them may have ended with another.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn start_run(client: &mut Client, label: &str) -> String {
    client.data("delegate_start", task(label))["run"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_continues_when_a_client_kills_the_process_tree_of_the_server() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    let run = start_run(&mut client, "soon");
    let (tree, process) = (process_tree(client.pid()), carrier(&rig, &run));
    assert!(!tree.contains(&process), "{process} is in {tree:?}");
    kill_all(&tree);
    drop(client);
    let out = rig.run(["wait", &run]);
    assert_eq!(out.code, 0, "{out}");
    assert!(rig.run(["result", &run]).stdout.contains("an answer after a second"));
}

#[test]
fn the_process_of_a_run_has_its_own_session_and_no_file_of_the_client() {
    let rig = Rig::with_script(SCRIPT);
    // A file that the client forgot to close when it started the server.
    let (leaked, _other_end) = std::io::pipe().unwrap();
    fcntl_setfd(&leaked, FdFlags::empty()).unwrap();
    let mut client = Client::allowed(&rig, &[]);
    let run = start_run(&mut client, "slow");
    let process = carrier(&rig, &run);
    let info = processes().into_iter().find(|it| it.pid == process).unwrap();
    assert_eq!((info.session, info.group), (process, process));
    let files = |pid: u32| -> Vec<_> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        files.filter_map(|file| fs::read_link(file.unwrap().path()).ok()).collect()
    };
    let pipe = fs::read_link(format!("/proc/self/fd/{}", leaked.as_raw_fd())).unwrap();
    assert!(files(client.pid()).contains(&pipe), "the server has it");
    assert!(!files(process).contains(&pipe), "{:?}", files(process));
    // The server has no child process left, neither that of the run nor the one that started it, alive or zombie.
    let children: Vec<_> = processes().into_iter().filter(|it| it.parent == client.pid()).collect();
    assert!(children.is_empty(), "{}", children[0].pid);
    client.data("delegate_cancel", json!({ "run": run }));
}

#[test]
fn the_client_learns_why_a_run_did_not_start() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    let config = rig.write(".adjutant/config.toml", "policy = 12\n");
    let said = client.failure("Delegate", task("quick"));
    assert!(said.contains("config.toml"), "{said}");
    fs::remove_file(config).unwrap();
    let data: Value = client.data("Delegate", task("quick"));
    assert_eq!((&data["state"], &data["repeated"]), (&json!("completed"), &json!(false)), "{data}");
}
