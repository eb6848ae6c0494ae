//! `policy`: shows the limits in force, each with its origin.

use adjutant_core::policy::PolicyKey;
use serde_json::{Map, Value, json};

use crate::args::PolicyArgs;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::settings::Settings;

/// Runs `adjutant policy`.
pub(crate) fn run_policy(args: &PolicyArgs, as_json: bool) -> Result<Exit, Failure> {
    let settings = Settings::load(&args.policy, &args.root)?;
    let explained = args.explain.is_some();
    if as_json {
        print_json(&as_object(&settings, explained))?;
    } else {
        print(&as_table(&settings, explained))?;
    }
    Ok(Exit::Completed)
}

fn as_object(settings: &Settings, explained: bool) -> Value {
    let policy = settings.policy.policy();
    let entries = PolicyKey::ALL.iter().map(|key| {
        let mut entry = Map::new();
        entry.insert("value".into(), key.get(policy));
        entry.insert("source".into(), settings.policy.source(*key).to_string().into());
        if explained {
            entry.insert("bounds".into(), key.doc().into());
            entry.insert("project_files".into(), key.tighter().describe().into());
        }
        (key.name().to_owned(), Value::Object(entry))
    });
    json!({ "v": 1, "preset": policy.preset.name(), "alias": policy.preset.alias(), "keys": Map::from_iter(entries) })
}

fn as_table(settings: &Settings, explained: bool) -> String {
    let policy = settings.policy.policy();
    let preset = policy.preset;
    let width =
        PolicyKey::ALL.iter().map(|key| format_value(&key.get(policy)).chars().count()).max();
    let width = width.unwrap_or_default();
    let mut text = format!("{preset} ({}): {}\n\n", preset.alias(), preset.purpose());
    for key in PolicyKey::ALL {
        let source = settings.policy.source(*key);
        text += format!("{:<20} {:<width$}  {source}", key.name(), format_value(&key.get(policy)))
            .trim_end();
        text.push('\n');
        if explained {
            text +=
                &format!("    {}; in a project file it {}\n", key.doc(), key.tighter().describe());
        }
    }
    text
}

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            number.as_u64().map_or_else(|| number.to_string(), adjutant_core::numbers::grouped)
        }
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::Bool(_) | Value::Object(_) => value.to_string(),
    }
}
