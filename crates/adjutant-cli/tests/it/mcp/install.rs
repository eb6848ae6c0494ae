//! The server in the configurations of clients: added once, with everything else unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::rig::{BINARY, Rig};

/// A client, the name of its servers' section, its file in a project and in the user's home.
const CLIENTS: [(&str, &str, &str, &str); 6] = [
    ("claude", "mcpServers", ".mcp.json", ".claude.json"),
    ("codex", "mcp_servers", ".codex/config.toml", ".codex/config.toml"),
    ("opencode", "mcp", "opencode.json", ".config/opencode/opencode.json"),
    ("gemini", "mcpServers", ".gemini/settings.json", ".gemini/settings.json"),
    ("vscode", "servers", ".vscode/mcp.json", ".config/Code/User/mcp.json"),
    ("cursor", "mcpServers", ".cursor/mcp.json", ".cursor/mcp.json"),
];

/// Where a client's file is.
fn file(rig: &Rig, client: &str, scope: &str) -> PathBuf {
    let (_, _, project, user) = CLIENTS.into_iter().find(|(name, ..)| *name == client).unwrap();
    if scope == "project" { rig.work().join(project) } else { rig.home().join(user) }
}

fn read(client: &str, text: &str) -> Value {
    if client == "codex" {
        return serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
    }
    adjutant_formats::document::jsonc::read(text).unwrap()
}

fn entry(rig: &Rig, client: &str, scope: &str) -> Value {
    let section = CLIENTS.into_iter().find(|(name, ..)| *name == client).unwrap().1;
    read(client, &fs::read_to_string(file(rig, client, scope)).unwrap())[section]["adjutant"]
        .clone()
}

/// What an entry starts.
fn command(entry: &Value) -> Vec<String> {
    let program = match entry["command"].as_array() {
        Some(all) => all.clone(),
        None => {
            [vec![entry["command"].clone()], entry["args"].as_array().unwrap().clone()].concat()
        }
    };
    program.into_iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[test]
fn install_adds_one_entry_that_starts_this_program_for_every_client() {
    for (client, ..) in CLIENTS {
        for scope in ["project", "user"] {
            let rig = Rig::new();
            let install = ["mcp", "install", client, "--scope", scope];
            let out = rig.run(install);
            assert_eq!((out.code, out.stdout.as_str()), (0, ""), "{out}");
            assert!(out.stderr.contains("Next: "), "{out}");
            let path = file(&rig, client, scope);
            let was = fs::read_to_string(&path).unwrap();
            let command = command(&entry(&rig, client, scope));
            assert_eq!(command[..2], [BINARY, "mcp"], "{was}");
            assert!(command.contains(&rig.state().display().to_string()), "{was}");
            let printed = rig.run([&install[..], &["--print"]].concat());
            assert_eq!(printed.stdout, was, "{client} {scope}");

            assert_eq!(rig.run(install).code, 0);
            assert_eq!(fs::read_to_string(&path).unwrap(), was, "{client} {scope}");
            let out = rig.run(["mcp", "remove", client, "--scope", scope]);
            assert_eq!(out.code, 0, "{out}");
            assert!(!fs::read_to_string(&path).unwrap().contains("adjutant"), "{client} {scope}");
        }
    }
}

/// Typical configurations with other content.
fn lived_in(client: &str, section: &str) -> String {
    if client == "codex" {
        return format!(
            "# mine\nmodel = \"x\" # why\nlist = [\n  \"a\",\n\n  '''\n[{section}.adjutant]\n''',\n]\n\n\
             [{section}.other]\ncommand = 'other'  # theirs\n\n# said of what follows\n[[last]]\nx = 1e3\n"
        );
    }
    format!(
        "{{\n\t// mine\n\t\"number\": 1.50e3, /* as it is */\n\t\"{section}\": {{\n\t\t\"other\": \
         {{ \"command\":  \"other\" }}, // theirs\n\t}},\n\t\"url\": \"http://x/*\", // end\n}}\n"
    )
}

#[test]
fn install_keeps_the_rest_of_the_file_and_makes_a_backup() {
    for (client, section, ..) in CLIENTS {
        let rig = Rig::new();
        let path = file(&rig, client, "project");
        let old = lived_in(client, section);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &old).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let install = ["mcp", "install", client, "--scope", "project"];
        let out = rig.run(install);
        assert_eq!(out.code, 0, "{out}");
        let new = fs::read_to_string(&path).unwrap();
        let mut wanted = read(client, &old);
        wanted[section]["adjutant"] = entry(&rig, client, "project");
        assert_eq!(read(client, &new), wanted, "{new}");
        // Removing the added text leaves the old bytes.
        let mut rest = new.as_str();
        for line in old.lines() {
            let at = rest.find(line).unwrap_or_else(|| panic!("{line:?} is gone from {new}"));
            rest = &rest[at + line.len()..];
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

        let kept = PathBuf::from(format!("{}.before-adjutant", path.display()));
        assert!(out.stderr.contains(".before-adjutant"), "{out}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), old);
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
        let out = rig.run([&install[..], &["--", "--model", "a/b"]].concat());
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), old, "the first one is kept");
        assert_eq!(rig.run(["mcp", "remove", client, "--scope", "project"]).code, 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), old, "{client}");
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        let left = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| !name.contains(".adjutant-")), "{client}");
    }
}

#[test]
fn install_keeps_flags_and_added_keys_of_an_entry_and_updates_a_moved_path() {
    for (client, ..) in CLIENTS {
        let rig = Rig::new();
        let install = ["mcp", "install", client, "--scope", "user"];
        let out =
            rig.run([&install[..], &["--", "--model", "a/b", "--approve-below", "1.5"]].concat());
        assert_eq!(out.code, 0, "{out}");
        let path = file(&rig, client, "user");
        let first = entry(&rig, client, "user");
        assert!(command(&first).ends_with(&["--home".into(), rig.state().display().to_string()]));
        let (old, added) = match client {
            "codex" => ("command =", "env_vars = [\"KEY\"] # mine\ncommand ="),
            _ => ("\"command\":", "\"note\": \"mine\", \"command\":"),
        };
        let text = fs::read_to_string(&path).unwrap();
        let text =
            text.replacen(old, added, 1).replace(BINARY, "/gone/adjutant").replace("600", "900");
        fs::write(&path, &text).unwrap();
        let out = rig.run(["doctor"]);
        let gone =
            format!("starts /gone/adjutant, which is not there: adjutant mcp install {client}");
        assert!(out.stdout.contains(&gone), "{out}");

        let out = rig.run(install);
        assert_eq!(out.code, 0, "{out}");
        assert!(
            out.stderr.contains("--model a/b --approve-below 1.5"),
            "what stays is said: {out}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text.replace("/gone/adjutant", BINARY));
        let out = rig.run(["doctor"]);
        assert!(out.stdout.contains(&format!("✓ mcp {client}")), "{out}");
        assert!(out.stdout.contains("--approve-below 1.5"), "what it is started with: {out}");
    }
}

/// A project file is untrusted and must not decide what may be spent.
#[test]
fn install_does_not_keep_flags_of_a_project_entry_that_were_not_typed() {
    let server = |more: &str| {
        format!(r#"{{"mcpServers":{{"adjutant":{{"command":"./adjutant-evil",{more}}}}}}}"#)
    };
    for (more, named) in [
        (r#""args":["mcp","--approve-below","10000"]"#, "--approve-below 10000"),
        (r#""args":["mcp","--set","network=true"]"#, "--set network=true"),
        (r#""args":["mcp","--home","/x"]"#, "--home /x"),
        (r#""args":["mcp"],"env":{"ANTHROPIC_BASE_URL":"http://x"}"#, "ANTHROPIC_BASE_URL"),
    ] {
        let rig = Rig::new();
        let text = server(more);
        let path = rig.write(".mcp.json", &text);
        let out = rig.run(["mcp", "install", "claude"]);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains(named), "{out}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let rig = Rig::new();
    rig.write(".mcp.json", server(r#""args":["mcp","--approve-below","2"]"#));
    let out = rig.run(["mcp", "install", "claude", "--", "--approve-below", "2"]);
    assert_eq!(out.code, 0, "what is typed counts: {out}");
    assert_eq!(command(&entry(&rig, "claude", "project"))[..3], [BINARY, "mcp", "--approve-below"]);
    assert_eq!(rig.run(["mcp", "install", "claude"]).code, 0, "and stays, since nothing changes");
}

#[test]
fn the_server_answers_before_each_client_times_out() {
    let rig = Rig::new();
    let old = "[mcp_servers.adjutant]\ncommand = \"adjutant\"\nargs = [\"mcp\", \"--detach-after\", \"540\"]\n\
               tool_timeout_sec = 60\n";
    fs::create_dir_all(rig.home().join(".codex")).unwrap();
    let path = rig.home().join(".codex/config.toml");
    fs::write(&path, old.replace("\"adjutant\"", &format!("{BINARY:?}"))).unwrap();
    let out = rig.run(["doctor"]);
    assert!(out.stdout.contains("gives up before it is answered: adjutant mcp install"), "{out}");
    assert_eq!(rig.run(["mcp", "install", "codex"]).code, 0);
    let found = command(&entry(&rig, "codex", "user"));
    assert_eq!(found[1..], ["mcp", "--detach-after", "45"], "three quarters of its patience");
    let out = rig.run(["doctor"]);
    assert!(out.stdout.contains("✓ mcp codex"), "{out}");
}

#[test]
fn flags_before_the_subcommand_are_not_lost() {
    let rig = Rig::new();
    for flags in [&["--approve-below", "1"][..], &["--model", "a/b"], &["--set", "max_depth=1"]] {
        let out = rig.run([&["mcp"], flags, &["install", "claude"]].concat());
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains(&format!("{} is before", flags[0])), "{out}");
    }
    assert!(!file(&rig, "claude", "project").exists());
    let out = rig.call(["mcp", "install", "claude"]).env("ADJUTANT_MODEL", "a/b").run();
    assert_eq!(out.code, 0, "a model of the environment is nobody's flag: {out}");
}

#[test]
fn remove_deletes_the_installed_entry_and_nothing_else() {
    let rig = Rig::new();
    fs::create_dir_all(rig.home().join(".codex")).unwrap();
    let path = rig.home().join(".codex/config.toml");
    let old = "# [mcp_servers.adjutant]\nmodel = \"x\"\n";
    fs::write(&path, old).unwrap();
    assert_eq!(rig.run(["mcp", "install", "codex"]).code, 0);
    let out = rig.run(["mcp", "remove", "codex"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(fs::read_to_string(&path).unwrap(), old);

    // A client that reads two files has an entry in one of them, and in none afterwards.
    rig.write("opencode.json", "{}\n");
    let named =
        rig.write("opencode.jsonc", "{ \"mcp\": { \"adjutant\": { \"enabled\": true } } }\n");
    assert_eq!(rig.run(["mcp", "install", "opencode"]).code, 0);
    assert_eq!(fs::read_to_string(rig.work().join("opencode.json")).unwrap(), "{}\n");
    assert!(fs::read_to_string(&named).unwrap().contains("\"mcp\""));
    rig.write("opencode.json", fs::read_to_string(&named).unwrap());
    assert_eq!(rig.run(["mcp", "remove", "opencode"]).code, 0);
    for name in ["opencode.json", "opencode.jsonc"] {
        let text = fs::read_to_string(rig.work().join(name)).unwrap();
        assert!(!text.contains("adjutant"), "{name}: {text}");
    }
}

#[test]
fn install_enters_a_program_on_the_path_by_its_name() {
    let rig = Rig::new();
    let bin = rig.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(BINARY, bin.join("adjutant")).unwrap();
    for (scope, named) in
        [("project", "adjutant".to_owned()), ("user", bin.join("adjutant").display().to_string())]
    {
        let out = rig.call(["mcp", "install", "claude", "--scope", scope]).env("PATH", &bin).run();
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(command(&entry(&rig, "claude", scope))[0], named);
    }
    let out = rig.call(["doctor"]).env("PATH", &bin).run();
    assert!(out.stdout.contains("✓ mcp claude"), "{out}");
    fs::write(bin.join("codex"), "").unwrap();
    fs::set_permissions(bin.join("codex"), fs::Permissions::from_mode(0o755)).unwrap();
    let out = rig.call(["doctor"]).env("PATH", &bin).run();
    assert!(out.stdout.contains("installed, not configured: adjutant mcp install codex"), "{out}");
}

#[test]
fn install_leaves_an_invalid_or_unexpected_file_unchanged() {
    for (client, text, said) in [
        ("claude", "{ \"mcpServers\": ", "it is not JSON"),
        ("claude", "[]", "is not an object"),
        ("gemini", "{ \"mcpServers\": [] }", "`mcpServers` is not an object"),
        (
            "claude",
            "{\"mcpServers\":{\"adjutant\":{\"url\":\"http://x\"}}}",
            "`command` is missing",
        ),
        ("codex", "a = [\n", "it is not TOML"),
        ("codex", "mcp_servers = 3\n", "change it by hand"),
        ("codex", "mcp_servers = { other = { command = \"x\" } }\n", "change it by hand"),
        ("codex", "[mcp_servers]\nadjutant.command = \"adjutant\"\n", "change it by hand"),
    ] {
        let rig = Rig::new();
        let path = file(&rig, client, "project");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let out = rig.run(["mcp", "install", client, "--scope", "project"]);
        assert_ne!(out.code, 0, "{out}");
        assert!(out.stderr.contains(said), "{text} {out}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "{client}");
    }
    let rig = Rig::new();
    fs::write(file(&rig, "claude", "project"), "{").unwrap();
    let out = rig.run(["doctor"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("the client cannot read it either"), "{out}");
}

#[test]
fn flags_that_the_server_does_not_have_are_refused_before_anything_is_written() {
    let rig = Rig::new();
    for flags in [
        &["--modle", "x"][..],
        &["--approve-below", "much"],
        &["--approve-below", "-1"],
        &["--budget-usd", "-1"],
        &["--budget-tokens", "-1"],
        &["install", "claude"],
        &["--preset", "nope"],
        &["--set", "foo=1"],
        &["--root", "/nonexistent"],
    ] {
        let out = rig.run([&["mcp", "install", "claude", "--"], flags].concat());
        assert_eq!(out.code, 2, "{out}");
        let is_command = flags[0] == "install";
        assert!(is_command || rig.run([&["mcp"], flags].concat()).code == 2, "{flags:?}");
    }
    let text = format!(
        r#"{{"mcpServers":{{"adjutant":{{"command":{BINARY:?},"args":["mcp","--bogus"]}}}}}}"#
    );
    rig.write(".mcp.json", &text);
    assert_eq!(rig.run(["mcp", "install", "claude"]).code, 2);
    let out = rig.run(["doctor"]);
    assert!(out.stdout.contains("flags that it refuses: unexpected argument '--bogus'"), "{out}");
    fs::remove_file(file(&rig, "claude", "project")).unwrap();
    assert!(!file(&rig, "claude", "project").exists());
}

#[test]
fn install_follows_links_in_the_home_directory_but_never_out_of_a_project() {
    let rig = Rig::new();
    let elsewhere = rig.path().join("elsewhere.json");
    fs::write(&elsewhere, "{}\n").unwrap();
    symlink(&elsewhere, file(&rig, "claude", "project")).unwrap();
    let out = rig.run(["mcp", "install", "claude"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("leads out of the project"), "{out}");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "{}\n");
    let folder = rig.path().join("folder");
    fs::create_dir(&folder).unwrap();
    symlink(&folder, rig.work().join(".vscode")).unwrap();
    assert_eq!(rig.run(["mcp", "install", "vscode"]).code, 2);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);

    let own = file(&rig, "claude", "user");
    symlink(&elsewhere, &own).unwrap();
    let out = rig.run(["mcp", "install", "claude", "--scope", "user"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains(&format!("is a link to {}", elsewhere.display())), "{out}");
    assert!(own.symlink_metadata().unwrap().is_symlink());
    assert!(fs::read_to_string(&elsewhere).unwrap().contains("\"mcp\""));
}

#[test]
fn install_completes_an_entry_without_a_command() {
    let rig = Rig::new();
    let old = "[mcp_servers.adjutant.tools.Delegate]\napproval_mode = \"approve\"\n";
    let path = rig.write(".codex/config.toml", old);
    assert_eq!(rig.run(["mcp", "install", "codex", "--scope", "project"]).code, 0);
    assert!(fs::read_to_string(&path).unwrap().starts_with(old));
    assert_eq!(entry(&rig, "codex", "project")["tools"]["Delegate"]["approval_mode"], "approve");
    let path = file(&rig, "claude", "user");
    fs::write(&path, r#"{"mcpServers": {"adjutant": {"env": {"A": "b"}}}}"#).unwrap();
    assert_eq!(rig.run(["mcp", "install", "claude", "--scope", "user"]).code, 0);
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(entry(&rig, "claude", "user")["env"], json!({ "A": "b" }), "{text}");
    assert_eq!(command(&entry(&rig, "claude", "user"))[0], BINARY, "{text}");
}

#[test]
fn install_finds_opencode_files_with_comments_and_the_newer_layout() {
    let rig = Rig::new();
    let path = rig.write("opencode.jsonc", "{\n  // mine\n  \"mcp\": { \"servers\": {} }\n}\n");
    assert_eq!(rig.run(["mcp", "install", "opencode"]).code, 0);
    assert!(!rig.work().join("opencode.json").exists());
    let text = fs::read_to_string(path).unwrap();
    let entry = &read("opencode", &text)["mcp"]["servers"]["adjutant"];
    assert_eq!((&entry["type"], &entry["enabled"]), (&json!("local"), &Value::Null), "{text}");
    assert!(text.contains("// mine"), "{text}");
}

#[test]
fn install_leaves_an_entry_of_another_program_unchanged() {
    let rig = Rig::new();
    let path = file(&rig, "cursor", "project");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = r#"{"mcpServers":{"adjutant":{"command":"/opt/other","args":["serve"]}}}"#;
    fs::write(&path, text).unwrap();
    let out = rig.run(["mcp", "install", "cursor"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("starts `/opt/other`"), "{out}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    for flags in [["--http", "127.0.0.1:0"], ["--allow-origin", "https://example.org"]] {
        let out = rig.run([&["mcp", "install", "gemini", "--"], &flags[..]].concat());
        assert_eq!(out.code, 2, "{out}");
        assert!(!file(&rig, "gemini", "project").exists(), "{out}");
    }
}

/// An address without a server: the machine may run its own Ollama.
const NO_OLLAMA: (&str, &str) = ("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1");

#[test]
fn install_says_which_model_the_server_finds_or_what_is_missing() {
    let rig = Rig::new();
    let install = |flags: &[&str]| {
        let args = [&["mcp", "install", "claude"], flags].concat();
        let out = rig.call(args).env(NO_OLLAMA.0, NO_OLLAMA.1).run();
        assert_eq!(out.code, 0, "{out}");
        out.stderr
    };
    let said = install(&[]);
    for part in ["no model can be reached yet", "`adjutant init`", "[providers.anthropic]"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    // What it recommends works: the line of the template, without its comment sign.
    assert_eq!(rig.run(["init"]).code, 0);
    let path = rig.home().join(".config/adjutant/config.toml");
    let template = fs::read_to_string(&path).unwrap();
    let (before, after) = template.split_once("# [providers.anthropic]").unwrap();
    let config = format!("{before}[providers.anthropic]{}", after.replacen("# key", "key", 1));
    fs::write(&path, config).unwrap();
    let said = install(&[]);
    assert!(
        said.contains("Model: provider anthropic: key found; https://api.anthropic.com"),
        "{said}"
    );
    let said = install(&["--", "--model", "script:none.toml"]);
    assert!(said.contains("Model: ") && said.contains("none.toml"), "{said}");
    let said = install(&["--", "--model=anthropic/claude-haiku-4-5"]);
    assert!(said.contains("Model: anthropic/claude-haiku-4-5 can be used"), "{said}");
}

#[test]
fn a_known_provider_needs_only_a_key_and_another_needs_an_address() {
    let rig = Rig::new();
    let folder = rig.home().join(".config/adjutant");
    fs::create_dir_all(&folder).unwrap();
    let doctor = |config: &str| {
        fs::write(folder.join("config.toml"), config).unwrap();
        rig.call(["doctor"]).env(NO_OLLAMA.0, NO_OLLAMA.1).run()
    };
    for (name, address) in [
        ("anthropic", "https://api.anthropic.com"),
        ("openai", "https://api.openai.com/v1"),
        ("gemini", "https://generativelanguage.googleapis.com"),
        ("openrouter", "https://openrouter.ai/api/v1"),
    ] {
        let out = doctor(&format!("[providers.{name}]\nkey = \"a-key\"\n"));
        assert!(out.stdout.contains(&format!("key found; {address}")), "{out}");
        assert!(!out.stdout.contains("a-key"), "{out}");
    }
    let out = doctor("[providers.home]\nkey = \"a-key\"\n");
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("[providers.home] needs `base_url`"), "{out}");
}
