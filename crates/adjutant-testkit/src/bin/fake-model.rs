//! A fake model server as a separate process, for benchmarks and manual tests.
//!
//! Prints its URL as one line to stdout as soon as it listens, and nothing else. It runs until it
//! is killed.

use std::path::PathBuf;
use std::process::ExitCode;

use adjutant_testkit::fake::{Api, FakeServer, Script};

const USAGE: &str = "usage: fake-model --api anthropic|chat|responses|gemini --script FILE
                  [--port N] [--delay-ms N] [--key KEY | --no-key] [--log FILE [--no-bodies]]";

/// The parsed command line.
#[derive(Default)]
struct FakeModelArgs {
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
    let ran = parse(std::env::args().skip(1)).and_then(|args| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(serve(args))
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fake-model: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<FakeModelArgs, String> {
    let mut args = FakeModelArgs::default();
    while let Some(flag) = words.next() {
        if flag == "--no-key" {
            args.no_key = true;
            continue;
        }
        if flag == "--no-bodies" {
            args.no_bodies = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        let number = || value.parse().map_err(|_| format!("`{flag}` needs a number"));
        match flag.as_str() {
            "--api" => args.api = Some(value.parse()?),
            "--port" => args.port = value.parse().map_err(|_| "`--port` needs a port")?,
            "--script" => args.script = Some(value.into()),
            "--delay-ms" => args.delay_ms = number()?,
            "--key" => args.key = Some(value),
            "--log" => args.log = Some(value.into()),
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    Ok(args)
}

#[expect(clippy::print_stdout, reason = "the URL is the data of this program")]
async fn serve(args: FakeModelArgs) -> Result<(), String> {
    let api = args.api.ok_or("`--api` is missing")?;
    let path = args.script.ok_or("`--script` is missing")?;
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| named(&error))?;
    let mut script = Script::from_toml(&text).map_err(|error| named(&error))?;
    script.delay_ms += args.delay_ms;
    let mut fake =
        FakeServer::new(api, script).port(args.port).without_recording().with_exact_delays();
    if let Some(key) = &args.key {
        fake = fake.key(key);
    }
    if args.no_key {
        fake = fake.without_key();
    }
    if args.no_bodies {
        fake = fake.without_bodies();
    }
    if let Some(log) = args.log {
        let file = std::fs::File::create(&log).map_err(|error| error.to_string())?;
        fake = fake.log_to(file);
    }
    let running = fake.listen().await.map_err(|error| error.to_string())?;
    println!("{}", running.url);
    running.serve().await;
    Ok(())
}
