//! Choosing concrete parts: the one place outside the engine that knows models.

use std::path::Path;
use std::sync::Arc;

use adjutant_engine::ModelOpener;
use adjutant_model::{Model, ScriptedModel};

use crate::exit::{Exit, Failure};

/// Opens the model of that name.
pub(crate) fn model(name: Option<&str>) -> Result<Arc<dyn Model>, Failure> {
    let Some(name) = name else {
        return Err(
            Failure::new(Exit::Usage, "Cannot spawn subagents: no model is chosen").hint(WAYS_OUT)
        );
    };
    if let Some(path) = name.strip_prefix("script:") {
        let script = ScriptedModel::load(Path::new(path))
            .map_err(|error| Failure::caused(Exit::Usage, &error))?;
        return Ok(Arc::new(script));
    }
    let provider = name.split_once('/').map_or(name, |(provider, _)| provider);
    Err(Failure::new(
        Exit::Usage,
        format!("Cannot spawn subagents: this version has no provider `{provider}`"),
    )
    .hint(WAYS_OUT))
}

/// Returns what opens the models that tasks ask for by name.
pub(crate) fn opener() -> ModelOpener {
    Arc::new(|name| model(Some(name)).map_err(|failure| failure.to_string()))
}

/// Reads a script that is part of the program.
pub(crate) fn script(toml: &str, name: &str) -> Result<Arc<dyn Model>, Failure> {
    let script =
        ScriptedModel::from_toml(toml).map_err(|error| Failure::caused(Exit::Failed, &error))?;
    Ok(Arc::new(script.with_name(name)))
}

const WAYS_OUT: &str = "This version runs scripted models: --model script:FILE (docs/scripted-model.md). \
`adjutant demo` shows one at work.";
