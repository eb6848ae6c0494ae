//! `models`, `doctor`: lists models, checks the setup.

use std::fs;
use std::io::{self, IsTerminal};
use std::iter;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use adjutant_core::numbers::format_rounded;
use adjutant_engine::Archive;
use adjutant_view::layout;
use serde_json::{Value, json};

use crate::args::PolicyFlags;
use crate::exit::{Exit, Failure};
use crate::mcp_clients;
use crate::output::{print, print_json, print_list};
use crate::readiness::{DoctorChecks, Readiness};
use crate::results;
use crate::settings::Settings;
use crate::wiring::{ListedModel, ModelSetup, is_loopback};
use crate::workers;

/// How long `doctor` waits for a connection to a local model server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// Runs `adjutant models`.
pub(crate) fn run_models(as_json: bool) -> Result<Exit, Failure> {
    let wiring = ModelSetup::new(&Settings::load(&PolicyFlags::default(), Path::new("."))?)?;
    let models = wiring.list();
    if as_json {
        let listed: Vec<Value> = models.iter().map(as_object).collect();
        let as_of = ModelSetup::prices_as_of();
        print_json(&json!({ "v": 1, "prices_as_of": as_of, "models": listed }))?;
    } else {
        print_list(&as_table(&models))?;
        let as_of = ModelSetup::prices_as_of();
        print_list(&format!("\nPrices per million tokens, as of {as_of}. {OWN_FIGURES}"))?;
    }
    Ok(Exit::Completed)
}

/// How a person overrides the catalogue.
const OWN_FIGURES: &str = r#"To set one yourself, write into your config.toml (`adjutant init` makes it):
  [models."openai/gpt-5"]
  price = { output = 12.5 }   # also input, cache_read, cache_write; what is left out stays
"#;

fn as_object(model: &ListedModel) -> Value {
    json!({
        "name": model.spec.name, "window": model.spec.window, "max_output": model.spec.max_output,
        "price": model.spec.price, "usable": model.problem.is_none(), "problem": model.problem,
        "default": model.is_default,
    })
}

/// Returns the table of models.
fn as_table(models: &[ListedModel]) -> String {
    let heads = ["model", "window", "in/out", ""].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = iter::once(heads).chain(models.iter().map(as_row)).collect();
    layout::columns(&rows, &[1])
}

fn as_row(model: &ListedModel) -> Vec<String> {
    let price = model.spec.price.map_or_else(
        || "unknown".to_owned(),
        |price| format!("${}/${}", price.input, price.output),
    );
    let state = match &model.problem {
        // The provider is part of the model's name.
        Some(problem) if problem.contains("no API key for provider") => "✗ no key".to_owned(),
        Some(problem) => format!("✗ {}", problem.trim_start_matches("Cannot spawn subagents: ")),
        None if model.is_default => "✓ default".to_owned(),
        None => "✓".to_owned(),
    };
    vec![model.spec.name.clone(), format_rounded(model.spec.window), price, state]
}

/// A line of `adjutant doctor`: what was checked, whether it is fine, and what to do if not.
struct DoctorFinding {
    name: String,
    fine: bool,
    says: String,
}

/// Runs `adjutant doctor`: checks everything that a run needs.
pub(crate) fn run_doctor(home: &Path, as_json: bool) -> Result<Exit, Failure> {
    let (settings, broken) = match Settings::load(&PolicyFlags::default(), Path::new(".")) {
        Ok(settings) => (settings, None),
        Err(failure) => (Settings::without_files()?, Some(failure)),
    };
    let wiring = ModelSetup::new(&settings)?;
    let given = std::env::var("ADJUTANT_MODEL").ok().filter(|name| !name.is_empty());
    let toolchains = settings.toolchains.clone();
    let given = given.or(settings.model);
    let model = given.clone().or_else(|| wiring.default_model());
    let mut findings = model_findings(&wiring, given);
    let is_readable = broken.is_none();
    if let Some(failure) = broken {
        // The lines between quote the file.
        let text = failure.to_string();
        let first = text.lines().next().unwrap_or_default();
        let last = text.lines().skip(1).last().map(|line| format!(": {line}")).unwrap_or_default();
        let says = format!("{first}{last}; the rest was checked without configuration files");
        findings.insert(0, finding("configuration", false, says));
    }
    let can_run = findings.iter().any(|it| it.fine);
    findings.push(store(home));
    findings.push(kernel());
    let machine = results::findings(home).into_iter();
    findings.extend(machine.map(|(name, fine, says)| finding(name, fine, says)));
    let seen = toolchains.findings().into_iter();
    findings.extend(seen.map(|(name, fine, says)| finding(name, fine, says)));
    let installed = if is_readable { workers::findings()? } else { Vec::new() }.into_iter();
    findings.extend(installed.map(|(name, fine, says)| finding(name, fine, says)));
    let clients = mcp_clients::findings(Path::new(".")).into_iter();
    findings.extend(clients.map(|(name, fine, says)| finding(name, fine, says)));
    let terminal = io::stderr().is_terminal();
    findings.push(finding(
        "terminal",
        true,
        if terminal { "progress is drawn live" } else { "plain lines are written" },
    ));
    let readiness = Readiness::of(abilities(&findings, model));
    if as_json {
        let lines: Vec<Value> = findings
            .iter()
            .map(|it| json!({ "name": it.name, "ok": it.fine, "says": it.says }))
            .collect();
        let mut json = json!({ "v": 1, "can_run": can_run, "findings": lines });
        readiness.add_to(&mut json);
        print_json(&json)?;
    } else {
        let wide = findings.iter().map(|it| it.name.len()).fold(22, usize::max);
        let line = |it: &DoctorFinding| {
            format!("{} {:<wide$} {}\n", if it.fine { "✓" } else { "·" }, it.name, it.says)
        };
        let lines: String = findings.iter().map(line).collect();
        print(&format!("{lines}\n{}\n", readiness.sentence()))?;
    }
    Ok(Exit::Completed)
}

/// Reads from the findings what this machine can do.
fn abilities(findings: &[DoctorFinding], model: Option<String>) -> DoctorChecks {
    let judge = |name: &str| match findings.iter().find(|it| it.name.starts_with(name)) {
        // The lines below the first are hints.
        Some(it) if !it.fine => Err(it.says.lines().next().unwrap_or_default().to_owned()),
        Some(_) | None => Ok(()),
    };
    let namespaces = judge("user namespaces");
    let namespaces = namespaces.map_err(|_| "user namespaces are not allowed here".to_owned());
    let is_usable = judge("model");
    let model = model.ok_or_else(|| NO_MODEL.to_owned());
    DoctorChecks {
        records: judge("store").and(judge("kernel")),
        configuration: judge("configuration"),
        model: is_usable.and(model),
        workspaces: judge("git").and(judge("workspaces")),
        commands: namespaces.and(judge("sandbox")),
    }
}

/// Why no subagent can run.
const NO_MODEL: &str = "no model: no API key was found, and a server on this machine is used only if --model or config.toml names it";

fn finding(name: impl Into<String>, fine: bool, says: impl Into<String>) -> DoctorFinding {
    DoctorFinding { name: name.into(), fine, says: says.into() }
}

/// Returns the model that an MCP server with these flags will use. The error says what is missing.
pub(crate) fn model_of_server(root: &Path, flags: &[String]) -> Result<String, Failure> {
    let settings = Settings::load(&PolicyFlags::default(), root)?;
    let wiring = ModelSetup::new(&settings)?;
    let typed = flags.iter().enumerate().find_map(|(nth, flag)| match flag.as_str() {
        "--model" => flags.get(nth + 1).cloned(),
        other => other.strip_prefix("--model=").map(str::to_owned),
    });
    if let Some(name) = typed.or(settings.model) {
        let finding = model_finding(&wiring, &name);
        return if finding.fine { Ok(finding.says) } else { Err(Failure::usage(finding.says)) };
    }
    let findings = providers(&wiring);
    match findings.iter().find(|it| it.fine) {
        Some(found) => Ok(format!("{}: {}", found.name, found.says)),
        None => Err(Failure::usage("no model can be reached yet").hint(NO_MODEL_FOR_CLIENTS)),
    }
}

/// What to do if the server of an MCP client has no model.
const NO_MODEL_FOR_CLIENTS: &str = "Run `adjutant init` and write a key into the file that it names: [providers.anthropic] \
with key = \"…\". Or start Ollama and install again with -- --model ollama/MODEL. `adjutant doctor` looks again.";

/// Checks the providers and the default model, without contacting remote providers.
fn model_findings(wiring: &ModelSetup, usual: Option<String>) -> Vec<DoctorFinding> {
    let usual = usual.map(|name| model_finding(wiring, &name));
    providers(wiring).into_iter().chain(usual).collect()
}

fn model_finding(wiring: &ModelSetup, name: &str) -> DoctorFinding {
    match wiring.choose(Some(name)) {
        // `choose` refuses a provider without a key, so this model can be called.
        Ok(_) => finding("model", true, format!("{name} can be used")),
        Err(failure) => finding("model", false, failure.to_string()),
    }
}

/// Checks the providers. Keys are never shown, and only servers on this machine are contacted.
fn providers(wiring: &ModelSetup) -> Vec<DoctorFinding> {
    let look = |(name, base_url, key): (String, String, Option<bool>)| {
        let name = format!("provider {name}");
        match key {
            Some(true) => finding(name, true, format!("key found; {base_url}")),
            Some(false) => finding(name, false, "no key in the environment or the user config"),
            None if answers(&base_url) => finding(name, true, format!("answers at {base_url}")),
            None => finding(name, false, format!("no answer at {base_url}")),
        }
    };
    wiring.providers().into_iter().map(look).collect()
}

fn answers(base_url: &str) -> bool {
    let Some((_, rest)) = base_url.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let addresses = is_loopback(base_url).then(|| host.to_socket_addrs().ok()).flatten();
    addresses.is_some_and(|mut found| {
        found.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok())
    })
}

fn store(home: &Path) -> DoctorFinding {
    let looked = Archive::open(home).and_then(|archive| {
        archive.probe()?;
        archive.runs()
    });
    match looked {
        Ok(runs) => finding("store", true, format!("{} ({} runs)", home.display(), runs.len())),
        Err(error) => {
            let failure = Failure::from_error(Exit::Failed, &error);
            finding("store", false, format!("{failure}; --home DIR keeps runs elsewhere"))
        }
    }
}

fn kernel() -> DoctorFinding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.trim().split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let fine = version >= (5, 6);
    let says = if fine {
        "confined file access"
    } else {
        "Linux 5.6 or newer is needed for confined file access"
    };
    finding(format!("kernel {}.{}", version.0, version.1), fine, says)
}
