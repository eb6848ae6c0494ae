//! The Debian package `adjutant`.

use std::process::Command;

use super::{Problem, Release, copy, copy_tree, run, write};

/// Makes the package.
pub(super) fn make_package(release: &Release) -> Result<(), Problem> {
    let root = release.build_dir("debian");
    copy_tree(&release.prefix, &root.join("usr"))?;
    // Debian's zsh looks in another directory than others.
    let share = root.join("usr/share");
    copy_tree(&share.join("zsh/site-functions"), &share.join("zsh/vendor-completions"))?;
    std::fs::remove_dir_all(share.join("zsh/site-functions")).map_err(|error| error.to_string())?;
    run(Command::new("gzip").args(["-9n", "-r"]).arg(share.join("man")))?;
    let profile = release.packaging("apparmor-profile");
    copy(&profile, &root.join("etc/apparmor.d/adjutant"), 0o644)?;
    let copyright = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
                     Files: *\nCopyright: the authors of Adjutant\nLicense: MIT or Apache-2.0\n \
                     See LICENSE-MIT, LICENSE-APACHE and THIRD-PARTY-NOTICES in this directory.\n";
    write(&share.join("doc/adjutant/copyright"), copyright)?;
    let control = format!(
        "Package: adjutant\nVersion: {}\nArchitecture: amd64\nSection: devel\nPriority: optional\n\
         Maintainer: The Adjutant project <adjutant@localhost>\nRecommends: git\n\
         Description: bounded delegation for AI agents\n \
         Hands tasks to subagents under hard limits on depth, fan-out, tokens, money and time,\n \
         confines them, records every step, and always returns a valid result.\n",
        release.version
    );
    let control_dir = root.join("DEBIAN");
    write(&control_dir.join("control"), &control)?;
    write(&control_dir.join("conffiles"), "/etc/apparmor.d/adjutant\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        let from = release.packaging(&format!("debian-{script}"));
        copy(&from, &control_dir.join(script), 0o755)?;
    }
    let package = release.dist.join(format!("adjutant_{}_amd64.deb", release.version));
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(root)
        .arg(package)
        .stdout(std::process::Stdio::null()))
}
