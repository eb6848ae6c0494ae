//! The private home directory of a delegation, in which mount points lie, and which the next run finds as it was left.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use adjutant_workspace::overlay::{CacheLayers, Overlay};
use adjutant_workspace::sandbox::{
    MountedDir, ProgramEnd, ProgramSpec, Sandbox, SandboxConfig, SandboxWorkspace,
};

use crate::overlay::{Ground, helper};
use crate::sandbox::run;

/// A user's home directory with a checkout at `code/deep/project` and a toolchain at `.tools`. Programs see private
/// directories at the paths of the home directory and `/tmp`.
struct Home {
    ground: Ground,
    config: SandboxConfig,
}

impl Home {
    fn new() -> Self {
        let ground = Ground::new();
        for directory in ["user/code/deep/project", "user/.tools/bin", "home", "tmp", "work-dir"] {
            fs::create_dir_all(ground.path(directory)).unwrap();
        }
        fs::write(ground.path("user/secret"), "secret").unwrap();
        fs::write(ground.path("user/code/deep/project/mine"), "the user's").unwrap();
        fs::write(ground.path("user/.tools/bin/tool"), "#!/bin/sh\necho tool\n").unwrap();
        fs::write(ground.path("user/.tools/settings"), "a = 1\ntoken = \"abc\"\n").unwrap();
        let program = fs::Permissions::from_mode(0o755);
        fs::set_permissions(ground.path("user/.tools/bin/tool"), program).unwrap();
        let mut config = SandboxConfig::new(
            helper(),
            SandboxWorkspace::directory(ground.path("work-dir")),
            ground.path("user/code/deep/project"),
        );
        config.grants = vec![ground.path("user/.tools")];
        config.hidden = vec![ground.path("user")];
        config.private = vec![
            MountedDir { from: ground.path("home"), at: ground.path("user") },
            MountedDir { from: ground.path("tmp"), at: PathBuf::from("/tmp") },
        ];
        Self { ground, config }
    }

    fn run(&self, text: &str) -> (ProgramEnd, String) {
        let sandbox = Sandbox::new(self.config.clone()).unwrap();
        let mut program = ProgramSpec::shell(format!("exec 2>&1; cd '{}'; {text}", self.user()));
        let home = ("HOME".into(), self.user().into());
        program.environment.retain(|(name, _)| name != "HOME");
        program.environment.push(home);
        let (ended, said) = run(&sandbox, &program).unwrap();
        (ended.end, said)
    }

    fn user(&self) -> String {
        self.ground.path("user").to_str().unwrap().to_owned()
    }
}

#[test]
fn the_home_directory_is_private_and_kept_and_the_workspace_has_the_path_of_the_checkout() {
    let home = Home::new();
    let (_, said) = home.run("ls -A; cat secret; ls -A code/deep/project; .tools/bin/tool; pwd");
    let user = home.user();
    let expected = format!(".tools\ncode\ncat: secret: No such file or directory\ntool\n{user}\n");
    assert_eq!(said, expected);
    let (_, said) = home.run(
        "echo kept > note; echo kept > /tmp/note; echo work > code/deep/project/file; \
         echo x > .tools/x || true; mkdir -p code/deep/beside .cache; echo $HOME",
    );
    assert!(
        said.contains("Read-only file system") && said.ends_with(&format!("{user}\n")),
        "{said}"
    );
    let (_, said) = home.run("cat note /tmp/note code/deep/project/file; ls -d code/deep/beside");
    assert_eq!(said, "kept\nkept\nwork\ncode/deep/beside\n");
    for (path, content) in
        [("home/note", "kept\n"), ("tmp/note", "kept\n"), ("work-dir/file", "work\n")]
    {
        assert_eq!(fs::read_to_string(home.ground.path(path)).unwrap(), content);
    }
    assert_eq!(fs::read_dir(home.ground.path("user/code/deep/project")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(home.ground.path("user")).unwrap().count(), 3);
}

/// A program that could replace a parent of a mount point with a link would choose where the next run creates
/// directories: outside the sandbox, before it is closed.
#[test]
fn parents_of_mount_points_can_neither_be_renamed_nor_replaced() {
    let home = Home::new();
    let trap = home.ground.path("trap");
    fs::create_dir(&trap).unwrap();
    for parent in ["code", "code/deep", "code/deep/project", ".tools"] {
        for trick in [
            format!("mv {parent} {parent}-2"),
            format!("rmdir {parent}"),
            format!("rm -rf {parent} && ls -d {parent}"),
            format!("mkdir -p other && mv -T other {parent}"),
            format!("ln -sfn '{}' other-link && mv -T other-link {parent}", trap.display()),
        ] {
            let (end, said) = home.run(&format!("{trick} && echo moved"));
            assert!(!said.contains("moved"), "{trick}: {said}");
            assert_ne!(end, ProgramEnd::Exited(0), "{trick}");
        }
    }
    let (_, said) = home.run("echo fine > code/deep/project/file; cat code/deep/project/file");
    assert_eq!(said, "fine\n");
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
}

/// As if an earlier version, or a run with other mounts, had let a program plant the link.
#[test]
fn nothing_is_created_through_a_planted_link() {
    let home = Home::new();
    let trap = home.ground.path("trap");
    fs::create_dir(&trap).unwrap();
    symlink(&trap, home.ground.path("home/code")).unwrap();
    let sandbox = Sandbox::new(home.config.clone()).unwrap();
    let refused = run(&sandbox, &ProgramSpec::shell("true")).unwrap_err().to_string();
    assert!(refused.contains("Too many levels of symbolic links"), "{refused}");
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
    // A toolchain can be left out.
    fs::remove_file(home.ground.path("home/code")).unwrap();
    fs::remove_dir(home.ground.path("home/.tools")).unwrap();
    symlink(&trap, home.ground.path("home/.tools")).unwrap();
    let (_, said) = home.run("ls .tools/ 2>&1 | grep -c bin; echo runs");
    assert_eq!(said, "0\nruns\n");
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
}

#[test]
fn a_cache_is_copied_on_write_while_the_user_writes_to_it() {
    let mut home = Home::new();
    let ground = &home.ground;
    for directory in ["user/.cache/pkg", "c/upper", "c/work", "c/at"] {
        fs::create_dir_all(ground.path(directory)).unwrap();
    }
    for number in 0..200 {
        fs::write(ground.path(&format!("user/.cache/pkg/{number}")), "old").unwrap();
    }
    let cache = CacheLayers {
        cache: ground.path("user/.cache/pkg"),
        upper: ground.path("c/upper"),
        work: ground.path("c/work"),
        at: ground.path("c/at"),
    };
    let mut layers = ground.layers();
    layers.caches = vec![cache];
    let mounted = Arc::new(Overlay::mount(&helper(), layers).unwrap());
    home.config.workspace = SandboxWorkspace::Overlay(Arc::clone(&mounted));
    home.config.replaced = vec![(home.ground.path("user/.tools/settings"), "a = 1\n".into())];
    let user = home.ground.path("user/.cache/pkg");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..20 {
                for number in 0..200 {
                    let (new, name) = (user.join("new"), user.join(number.to_string()));
                    fs::write(&new, format!("user {round}")).unwrap();
                    fs::rename(new, name).unwrap();
                }
            }
        });
        for round in 0..5 {
            let text = format!(
                "cd .cache/pkg; for n in $(seq 0 99); do test -s $n || echo empty $n; done; \
                 echo agent > own-{round}; echo agent > {round}; rm -f {}; cat own-0 {round}",
                round + 100
            );
            assert_eq!(home.run(&text), (ProgramEnd::Exited(0), "agent\nagent\n".to_owned()));
        }
        writer.join().unwrap();
    });
    assert!(!user.join("own-0").exists());
    assert_eq!(fs::read_to_string(user.join("0")).unwrap(), "user 19");
    assert!(user.join("100").exists());
    assert_eq!(home.run("cat .tools/settings").1, "a = 1\n");
    // The next mount of the same layers has what the agent wrote.
    let layers = mounted.layers().clone();
    home.config.workspace = SandboxWorkspace::directory(home.ground.path("work-dir"));
    Arc::into_inner(mounted).unwrap().unmount();
    let mounted = Arc::new(Overlay::mount(&helper(), layers).unwrap());
    home.config.workspace = SandboxWorkspace::Overlay(mounted);
    assert_eq!(home.run("cat .cache/pkg/own-4; ls .cache/pkg | grep -cx 100").1, "agent\n0\n");
}
