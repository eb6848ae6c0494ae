//! `models`, `doctor`, `init`: lists models, checks the setup, writes a configuration template.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use adjutant_core::numbers::grouped;
use adjutant_engine::Archive;
use serde_json::{Value, json};

use crate::args::PolicyFlags;
use crate::exit::{Exit, Failure};
use crate::mcp_clients;
use crate::output::{print, print_json};
use crate::results;
use crate::settings::{Settings, user_config_path};
use crate::wiring::{ListedModel, ModelSetup};
use crate::workers;

/// How long `doctor` waits for a connection to a local model server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The configuration that `init` writes. Every setting is commented out.
const TEMPLATE: &str = include_str!("config.toml");

/// Runs `adjutant models`.
pub(crate) fn run_models(as_json: bool) -> Result<Exit, Failure> {
    let wiring = ModelSetup::new(&Settings::load(&PolicyFlags::default(), Path::new("."))?)?;
    let models = wiring.list();
    if as_json {
        let listed: Vec<Value> = models.iter().map(as_object).collect();
        let as_of = ModelSetup::prices_as_of();
        print_json(&json!({ "v": 1, "prices_as_of": as_of, "models": listed }))?;
    } else {
        print(&models.iter().map(as_line).collect::<String>())?;
        print(&format!("\nPrices are as of {}. {OWN_FIGURES}", ModelSetup::prices_as_of()))?;
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

fn as_line(model: &ListedModel) -> String {
    let price = model.spec.price.map_or_else(
        || "price unknown".to_owned(),
        |price| format!("${}/${} per M in/out", price.input, price.output),
    );
    let state = match &model.problem {
        Some(problem) => format!("✗ {}", problem.trim_start_matches("Cannot spawn subagents: ")),
        None if model.is_default => "✓ usable, the default".to_owned(),
        None => "✓ usable".to_owned(),
    };
    format!(
        "{:<34} {:>10} tokens  {price:<28} {state}\n",
        model.spec.name,
        grouped(model.spec.window)
    )
}

/// A line of `adjutant doctor`: what was checked, whether it is fine, and what to do if not.
struct DoctorFinding {
    name: String,
    fine: bool,
    says: String,
}

/// Runs `adjutant doctor`: checks everything that a run needs.
pub(crate) fn run_doctor(home: &Path, as_json: bool) -> Result<Exit, Failure> {
    let settings = Settings::load(&PolicyFlags::default(), Path::new("."))?;
    let wiring = ModelSetup::new(&settings)?;
    let given = std::env::var("ADJUTANT_MODEL").ok().filter(|name| !name.is_empty());
    let toolchains = settings.toolchains.clone();
    let mut findings = model_findings(&wiring, given.or(settings.model));
    let can_run = findings.iter().any(|it| it.fine);
    findings.push(store(home));
    findings.push(kernel());
    let machine = results::findings(home).into_iter();
    findings.extend(machine.map(|(name, fine, says)| finding(name, fine, says)));
    let seen = toolchains.findings().into_iter();
    findings.extend(seen.map(|(name, fine, says)| finding(name, fine, says)));
    let installed = workers::findings()?.into_iter();
    findings.extend(installed.map(|(name, fine, says)| finding(name, fine, says)));
    let clients = mcp_clients::findings(Path::new(".")).into_iter();
    findings.extend(clients.map(|(name, fine, says)| finding(name, fine, says)));
    let terminal = io::stderr().is_terminal();
    findings.push(finding(
        "terminal",
        true,
        if terminal { "progress is drawn live" } else { "plain lines are written" },
    ));
    if as_json {
        let lines: Vec<Value> = findings
            .iter()
            .map(|it| json!({ "name": it.name, "ok": it.fine, "says": it.says }))
            .collect();
        print_json(&json!({ "v": 1, "can_run": can_run, "findings": lines }))?;
    } else {
        let wide = findings.iter().map(|it| it.name.len()).fold(22, usize::max);
        let line = |it: &DoctorFinding| {
            format!("{} {:<wide$} {}\n", if it.fine { "✓" } else { "·" }, it.name, it.says)
        };
        let mut text: String = findings.iter().map(line).collect();
        text += if can_run {
            "\nReady: adjutant run \"GOAL\"\n"
        } else {
            "\nNo model can be reached yet. Do one of:\n  export ANTHROPIC_API_KEY=…   (or OPENAI_API_KEY, GEMINI_API_KEY)\n  \
             start Ollama and use --model ollama/MODEL\n  adjutant demo   (needs nothing)\n"
        };
        print(&text)?;
    }
    Ok(Exit::Completed)
}

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
    let local = ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host.starts_with(name));
    let addresses = local.then(|| host.to_socket_addrs().ok()).flatten();
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

/// Runs `adjutant init`: writes the template if there is no configuration yet.
pub(crate) fn run_init(as_json: bool) -> Result<Exit, Failure> {
    let path = user_config_path()
        .ok_or_else(|| Failure::usage("no configuration directory: HOME is not set"))?;
    let failed = |error: io::Error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display()))
    };
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    // Private, because the file may later contain keys. An existing file is never replaced.
    match fs::File::options().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => file.write_all(TEMPLATE.as_bytes()).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::usage(format!(
                "{} exists already and was left alone",
                path.display()
            )));
        }
        Err(error) => return Err(failed(error)),
    }
    if as_json {
        print_json(&json!({ "v": 1, "path": path }))?;
    } else {
        print(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Completed)
}
