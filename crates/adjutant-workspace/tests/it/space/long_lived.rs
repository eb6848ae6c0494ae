//! What another coding agent needs in the sandbox of a workspace: its own program and its interpreter from the person's
//! home directory, a private home, and a server of the engine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use adjutant_workspace::sandbox::{ProgramEnd, ProgramInput, ResourceBounds};

use super::*;
use crate::overlay::PROBE;

/// A home directory with an interpreter and a package, as nvm and npm lay them out, and with secrets.
fn home(user: &User) -> PathBuf {
    let home = user.outer.path().join("home");
    let files = [
        (".nvm/versions/node/v22/bin/node", "#!/bin/sh\n. \"$1\"\n"),
        (".nvm/versions/node/v18/bin/node", "another version"),
        (".npm-global/lib/node_modules/agent/index.js", "echo agent in $PWD with $KEY\n"),
        (".npm-global/lib/node_modules/agent/.npmrc", "token"),
        (".npm-global/lib/node_modules/other/index.js", "not granted"),
        (".claude/.credentials.json", "secret"),
        ("letter", "secret"),
    ];
    for (path, text) in files {
        let path = home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let node = home.join(".nvm/versions/node/v22/bin/node");
    fs::set_permissions(node, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.join(".npm-global/bin")).unwrap();
    let link = home.join(".npm-global/bin/agent");
    symlink("../lib/node_modules/agent/index.js", link).unwrap();
    home
}

#[test]
fn an_agent_runs_from_folders_in_the_hidden_home_and_talks_to_the_engine() {
    for (backing, kind) in KINDS {
        let user = user();
        let home = home(&user);
        let options = WorkspaceOptions { home: Some(home.clone()), ..options(backing) };
        let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
        let space = spaces.make("run", "child", "1", None).unwrap();
        let package = home.join(".npm-global/lib/node_modules/agent");
        let node = home.join(".nvm/versions/node/v22");
        let toolchains = vec![node.clone(), package.clone(), PROBE.as_str().into()];
        let bounds = ResourceBounds { memory_bytes: 6 << 30, ..ResourceBounds::default() };
        let more = SandboxOptions {
            toolchains,
            hidden: vec![home.clone()],
            bounds: bounds.clone(),
            ..SandboxOptions::default()
        };
        let sandbox = space.sandbox(more).unwrap();
        assert!(sandbox.level().is_full());
        assert_eq!(sandbox.config().bounds.memory_bytes, bounds.memory_bytes);
        let run = |program: &ProgramSpec| {
            let mut captured = BoundedOutput::new(64 << 10);
            let ended = sandbox.run(program, &CancelHandle::new().unwrap(), &mut captured).unwrap();
            (ended.end, String::from_utf8_lossy(&captured.bytes()).into_owned())
        };
        let shell = |text: &str| {
            let mut program = ProgramSpec::shell(format!("exec 2>/dev/null; {text}"));
            program.environment.retain(|(name, _)| name != "HOME");
            program.environment.push(("HOME".into(), home.clone().into()));
            run(&program).1
        };

        let words = [node.join("bin/node"), package.join("index.js")].map(Into::into);
        let mut program = ProgramSpec::new(words);
        program.environment = vec![("KEY".into(), "placeholder".into())];
        let shown = space.path().display().to_string();
        let expected = format!("agent in {shown} with placeholder\n");
        assert_eq!(run(&program), (ProgramEnd::Exited(0), expected), "{kind}");

        assert_eq!(shell("cd; ls -A"), ".npm-global\n.nvm\n", "{kind}");
        assert_eq!(
            shell("cd; ls -A .npm-global/lib/node_modules .nvm/versions/node"),
            "\
            .npm-global/lib/node_modules:\nagent\n\n.nvm/versions/node:\nv22\n"
        );
        assert_eq!(
            shell(
                "cat ~/letter ~/.claude/.credentials.json ~/.npm-global/lib/node_modules/agent/.npmrc"
            ),
            ""
        );
        assert_eq!(shell("echo x > ~/.nvm/versions/node/v22/x || echo refused"), "refused\n");
        assert_eq!(
            shell("mkdir ~/.agent && echo kept > ~/.agent/session; cat ~/.agent/session"),
            "kept\n"
        );
        assert_eq!(shell("cat ~/.agent/session"), "kept\n", "{kind}: the next run finds its home");
        assert!(!home.join(".agent").exists(), "{kind}");

        let listener = sandbox.listen_on_loopback().unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mut writer, input) = ProgramInput::pipe().unwrap();
        writeln!(writer, "hello").unwrap();
        drop(writer);
        let script = "read word; exec \"$0\" ask \"$1\" \"$word\"";
        let probe = PROBE.as_str();
        let words = ["/bin/sh", "-c", script, probe, &address].map(Into::into);
        let program = ProgramSpec { input: Some(input), ..ProgramSpec::new(words) };
        let said = std::thread::scope(|scope| {
            let server = scope.spawn(|| answer(&listener));
            let said = run(&program).1;
            server.join().unwrap();
            said
        });
        assert_eq!(said, "hello to you\n", "{kind}");
    }
}

fn answer(server: &TcpListener) {
    let (mut client, _) = server.accept().unwrap();
    let mut question = String::new();
    client.read_to_string(&mut question).unwrap();
    write!(client, "{question} to you").unwrap();
    client.shutdown(Shutdown::Both).unwrap();
}
