//! The help of every command for terminals of 60, 80 and 160 columns. The snapshots are in `snapshots`, a file per width.

use adjutant_view::layout::width;

use crate::docs::reference::commands;
use crate::support::rig::Rig;

/// Returns every command as its words, those below other commands included.
fn all_commands(rig: &Rig) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for name in commands(&rig.run(["--help"]).stdout) {
        let help = rig.run([&*name, "--help"]).stdout;
        let rows = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let rows = rows.take_while(|line| line.starts_with("  "));
        let names = rows.filter(|line| !line.starts_with("   "));
        let below: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
        all.push(vec![name.clone()]);
        let below = below.into_iter().filter(|it| *it != "help");
        all.extend(below.map(|it| vec![name.clone(), it.to_owned()]));
    }
    all
}

#[test]
fn the_help_of_every_command_fits_terminals_of_60_80_and_160_columns() {
    let rig = Rig::new();
    let all = all_commands(&rig);
    assert!(all.len() > 40, "{all:?}");
    for columns in [60, 80, 160] {
        let mut page = String::new();
        for command in &all {
            let help = rig.call(command.iter().map(String::as_str).chain(["--help"]));
            let help = help.env("COLUMNS", columns.to_string()).run();
            assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{command:?}");
            for line in help.stdout.lines() {
                // Words that are longer than a line, and usage lines, are not broken: people copy them.
                let is_whole = line.split_whitespace().count() == 1
                    || line.starts_with("Usage:")
                    || line.starts_with("       adjutant ");
                assert!(width(line) <= columns || is_whole, "{command:?} at {columns}: `{line}`");
            }
            page += &format!("$ adjutant {} --help\n{}\n", command.join(" "), help.stdout);
        }
        insta::assert_snapshot!(format!("help-{columns}"), page);
    }
}
