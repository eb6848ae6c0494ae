//! `check`, `parse`, `validate`: apply one rule of the core to standard input and print JSON.

use std::io::Read;
use std::path::Path;

use adjutant_core::SessionId;
use adjutant_core::check::{CheckInput, check};
use adjutant_engine::artifact_facts;
use adjutant_formats::contract::{
    ArtifactFileState, MetadataSource, RequiredArtifacts, ReturnContract, validate,
};
use adjutant_formats::marker;

use crate::args::{CheckDelegationArgs, ParseMarkersArgs, ValidateReturnArgs};
use crate::exit::{Exit, Failure};
use crate::output::print_json;
use crate::settings::Settings;

/// The largest input from standard input or a file.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Runs `adjutant check`: judges one delegation.
pub(crate) fn run_check(args: &CheckDelegationArgs) -> Result<Exit, Failure> {
    let settings = Settings::load(&args.policy, Path::new("."))?;
    let text = read_stdin()?;
    let input: CheckInput = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("standard input is not a valid request: {error}"))
            .hint("`adjutant check --help` shows an example.")
    })?;
    let answer =
        check(settings.policy, &input).map_err(|error| Failure::usage(error.to_string()))?;
    print_json(&answer)?;
    Ok(if answer.is_granted() { Exit::Completed } else { Exit::Refused })
}

/// Runs `adjutant parse`: reads the delegation markers of a reply.
pub(crate) fn run_parse(args: &ParseMarkersArgs) -> Result<Exit, Failure> {
    let settings = Settings::load(&story(), Path::new("."))?;
    let text = read_stdin()?;
    let max = usize::try_from(settings.policy.policy().tasks_per_call).unwrap_or(usize::MAX);
    let request =
        marker::MarkerContext { parent: &args.parent, depth: args.depth, start: args.start, max };
    let parsed = marker::parse(&text, &request);
    print_json(&parsed)?;
    Ok(Exit::Completed)
}

/// Returns the flags of the preset `story`, whose limits apply to markers.
fn story() -> crate::args::PolicyFlags {
    crate::args::PolicyFlags { preset: Some("story".into()), ..Default::default() }
}

/// Runs `adjutant validate`: judges the return of an agent.
pub(crate) fn run_validate(args: &ValidateReturnArgs) -> Result<Exit, Failure> {
    let expected_session = args
        .session
        .as_deref()
        .map(str::parse::<SessionId>)
        .transpose()
        .map_err(|error| Failure::usage(format!("--session: {error}")))?;
    let contract = ReturnContract {
        expected_session,
        artifacts: if args.artifacts_required {
            RequiredArtifacts::Any
        } else {
            RequiredArtifacts::Nothing
        },
        kind: None,
        metadata: MetadataSource::Claimed,
        observed: None,
    };
    let text = read_stdin()?;
    let verdict = match &args.root {
        None => validate(text.as_str(), &contract, &|_| ArtifactFileState::Unchecked),
        Some(root) => {
            let facts =
                artifact_facts(root).map_err(|error| Failure::from_error(Exit::Usage, &error))?;
            validate(text.as_str(), &contract, &facts)
        }
    };
    print_json(&verdict)?;
    Ok(if verdict.valid { Exit::Completed } else { Exit::Failed })
}

/// Reads standard input as text.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let bytes = read_capped(std::io::stdin().lock())
        .map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        Failure::usage(format!(
            "standard input is not UTF-8: invalid at byte {}",
            error.utf8_error().valid_up_to()
        ))
    })
}

/// Reads everything, and fails if it is larger than the limit.
pub(crate) fn read_capped(input: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(std::io::Error::other("it has more than 64 MiB"));
    }
    Ok(bytes)
}
