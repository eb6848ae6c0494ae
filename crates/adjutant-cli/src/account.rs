//! The account that runs this process, as /etc/passwd has it.
//!
//! `HOME` and other variables may come from a file of a project, such as the `env` of a server in `.mcp.json`. What only
//! the person may decide is read from below this home directory instead.

use std::fs;
use std::path::PathBuf;

/// Returns the home directory of the account. `None` if the account is not in /etc/passwd.
pub(crate) fn home() -> Option<PathBuf> {
    home_in(&fs::read_to_string("/etc/passwd").ok()?, rustix::process::getuid().as_raw())
}

fn home_in(passwd: &str, uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    let home = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.len() == 7 && fields[2] == uid).then(|| PathBuf::from(fields[5]))
    })?;
    home.is_absolute().then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_of_an_account_is_read_from_its_line() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken:x:7\n\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n\
                      none:x:1001:1001:::/bin/sh\n";
        for (uid, expected) in
            [(0, Some("/root")), (1000, Some("/home/ann")), (7, None), (100, None), (1001, None)]
        {
            assert_eq!(home_in(passwd, uid), expected.map(PathBuf::from), "{uid}");
        }
    }
}
