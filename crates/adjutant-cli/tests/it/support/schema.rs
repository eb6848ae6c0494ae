//! Checks output against `docs/schemas`: every required field, and no field that is not described.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Checks a value against the schema of that name.
#[track_caller]
pub(crate) fn assert_fits(name: &str, value: &Value) {
    let schema = read(&format!("{name}.json"));
    check(value, &schema, &schema, name).unwrap();
}

/// Where the schemas lie.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// Reads the schema of that file name.
pub(crate) fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the first complaint about names, types, or which of several shapes one has.
fn check(value: &Value, schema: &Value, whole: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        if !name.starts_with('#') {
            let other = read(name);
            return check(value, &other, &other, at);
        }
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
    if !has_type(value, &schema["type"]) {
        return Err(format!("{at}: {value} is not of type {}", schema["type"]));
    }
    if let (Value::Array(items), Some(each)) = (value, schema.get("items")) {
        for (place, item) in items.iter().enumerate() {
            check(item, each, whole, &format!("{at}[{place}]"))?;
        }
    }
    if value.is_object() && schema["properties"].is_object() {
        return check_names(value, schema, whole, at);
    }
    Ok(())
}

fn has_type(value: &Value, named: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(_) | None => false,
    };
    match named {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => is(named),
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
