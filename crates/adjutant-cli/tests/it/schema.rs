//! Holds what is printed to `docs/schemas`: every required name, and no name that is not described.

use std::path::Path;

use serde_json::Value;

/// Checks a value against the schema of that name.
#[track_caller]
pub(crate) fn assert_fits(name: &str, value: &Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    check(value, &schema, &schema, name).unwrap();
}

/// Returns the first complaint. Types are held to by the tests of `adjutant-view`; here the names
/// are, and which of several shapes one has.
fn check(value: &Value, schema: &Value, whole: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = whole.pointer(name.trim_start_matches('#')).ok_or(format!("{at}: {name}?"))?;
        return check(value, target, whole, at);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let fits = choices.iter().filter(|one| check(value, one, whole, at).is_ok()).count();
            return if fits == 1 { Ok(()) } else { Err(format!("{at}: {fits} fit {value}")) };
        }
    }
    if schema.get("const").is_some_and(|constant| constant != value) {
        return Err(format!("{at}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return Err(format!("{at}: {value} is not in {}", schema["enum"]));
    }
    if schema["type"] == "null" && !value.is_null() {
        return Err(format!("{at}: {value} is not null"));
    }
    if let (Value::Array(items), Some(each)) = (value, schema.get("items")) {
        for (place, item) in items.iter().enumerate() {
            check(item, each, whole, &format!("{at}[{place}]"))?;
        }
    }
    match (schema["properties"].as_object(), value) {
        (None, _) | (Some(_), Value::Null) => Ok(()),
        (Some(_), Value::Object(_)) => check_names(value, schema, whole, at),
        (Some(_), _) => Err(format!("{at}: {value} is no object")),
    }
}

fn check_names(value: &Value, schema: &Value, whole: &Value, at: &str) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            return Err(format!("{at}: {name} is missing"));
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let described = schema["properties"].get(name);
        let described = described.ok_or(format!("{at}: {name} is not described"))?;
        check(field, described, whole, &format!("{at}.{name}"))?;
    }
    Ok(())
}
