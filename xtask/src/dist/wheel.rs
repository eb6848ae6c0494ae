//! The Python wheel `adjutant-cli`, which installs the program as a script.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Problem, Release, copy, copy_tree, output, readme, run, write};

/// The platform tag. A static program needs no library, so the oldest tag is right.
const TAG: &str = "py3-none-manylinux_2_5_x86_64";

/// Makes the wheel.
pub(super) fn make_wheel(release: &Release) -> Result<(), Problem> {
    let version = &release.version;
    let (data, info) =
        (format!("adjutant_cli-{version}.data"), format!("adjutant_cli-{version}.dist-info"));
    let root = release.build_dir("wheel");
    let program = release.prefix.join("bin/adjutant");
    copy(&program, &root.join(&data).join("scripts/adjutant"), 0o755)?;
    copy_tree(&release.prefix.join("share"), &root.join(&data).join("data/share"))?;
    let readme = readme::packaged(release)?;
    let metadata = format!(
        "Metadata-Version: 2.4\nName: adjutant-cli\nVersion: {version}\n\
         Summary: Bounded delegation for AI agents: the command `adjutant`\n\
         License-Expression: MIT OR Apache-2.0\nRequires-Python: >=3.7\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    );
    write(&root.join(&info).join("METADATA"), &metadata)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: adjutant-xtask\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    );
    write(&root.join(&info).join("WHEEL"), &wheel)?;
    let record = record(&root, &info)?;
    write(&root.join(&info).join("RECORD"), &record)?;
    let file = release.dist.join(format!("adjutant_cli-{version}-{TAG}.whl"));
    run(Command::new("python3")
        .args(["-m", "zipfile", "-c"])
        .arg(file)
        .args([data, info])
        .current_dir(&root))
}

/// Returns the list of all files with their hashes.
fn record(root: &Path, info: &str) -> Result<String, Problem> {
    let sums = output(
        Command::new("find")
            .args([".", "-type", "f", "-exec", "sha256sum", "{}", "+"])
            .current_dir(root),
    )?;
    let mut lines = Vec::new();
    for line in sums.lines() {
        let (sum, file) = line.split_once("  ./").ok_or("sha256sum printed something else")?;
        let size = fs::metadata(root.join(file)).map_err(|error| error.to_string())?.len();
        lines.push(format!("{file},sha256={},{size}\n", base64_of_hex(sum)?));
    }
    lines.sort();
    lines.push(format!("{info}/RECORD,,\n"));
    Ok(lines.concat())
}

/// Turns a hexadecimal hash into base64 for URLs, without padding, as the format demands.
fn base64_of_hex(hex: &str) -> Result<String, Problem> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |it: char| it.to_digit(16).ok_or("not a hash".to_owned());
    let bits = hex.chars().map(digit).collect::<Result<Vec<u32>, Problem>>()?;
    let bits: Vec<bool> =
        bits.iter().flat_map(|it| (0..4).rev().map(move |at| it >> at & 1 == 1)).collect();
    let value =
        |six: &[bool]| (0..6).fold(0, |sum, at| sum * 2 + usize::from(six.get(at) == Some(&true)));
    Ok(bits.chunks(6).map(|six| char::from(DIGITS[value(six)])).collect())
}
