//! A fake model server as a separate process, for benchmarks and manual tests.
//!
//! Prints its URL as one line to stdout as soon as it listens, and nothing else. It runs until it
//! is killed.

use std::path::PathBuf;
use std::process::ExitCode;

use adjutant_testkit::fake::{Api, Fake, Script};

const USAGE: &str = "usage: fake-model --api anthropic|chat|responses|gemini --script FILE
                  [--port N] [--delay-ms N] [--key KEY | --no-key] [--log FILE [--no-bodies]]";

/// The parsed command line.
#[derive(Default)]
struct Wanted {
    api: Option<Api>,
    port: u16,
    script: Option<PathBuf>,
    delay_ms: u64,
    key: Option<String>,
    no_key: bool,
    no_bodies: bool,
    log: Option<PathBuf>,
}

#[expect(clippy::print_stderr, reason = "stderr is where a command line tool complains")]
fn main() -> ExitCode {
    let ran = parse(std::env::args().skip(1)).and_then(|wanted| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(serve(wanted))
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fake-model: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    while let Some(flag) = words.next() {
        if flag == "--no-key" {
            wanted.no_key = true;
            continue;
        }
        if flag == "--no-bodies" {
            wanted.no_bodies = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        let number = || value.parse().map_err(|_| format!("`{flag}` needs a number"));
        match flag.as_str() {
            "--api" => wanted.api = Some(value.parse()?),
            "--port" => wanted.port = value.parse().map_err(|_| "`--port` needs a port")?,
            "--script" => wanted.script = Some(value.into()),
            "--delay-ms" => wanted.delay_ms = number()?,
            "--key" => wanted.key = Some(value),
            "--log" => wanted.log = Some(value.into()),
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    Ok(wanted)
}

#[expect(clippy::print_stdout, reason = "the URL is the data of this program")]
async fn serve(wanted: Wanted) -> Result<(), String> {
    let api = wanted.api.ok_or("`--api` is missing")?;
    let path = wanted.script.ok_or("`--script` is missing")?;
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| named(&error))?;
    let mut script = Script::from_toml(&text).map_err(|error| named(&error))?;
    script.delay_ms += wanted.delay_ms;
    let mut fake = Fake::new(api, script).port(wanted.port).forgetful().exact();
    if let Some(key) = &wanted.key {
        fake = fake.key(key);
    }
    if wanted.no_key {
        fake = fake.without_key();
    }
    if wanted.no_bodies {
        fake = fake.without_bodies();
    }
    if let Some(log) = wanted.log {
        let file = std::fs::File::create(&log).map_err(|error| error.to_string())?;
        fake = fake.log_to(file);
    }
    let running = fake.listen().await.map_err(|error| error.to_string())?;
    println!("{}", running.url);
    running.serve().await;
    Ok(())
}
