//! A hash that is equal for equal calls, independent of the order of JSON keys.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the hash of a call together with the tree, the client and the contents of its context files.
pub(crate) fn call_hash(call: &Value, root: &str, client: &str, contexts: Option<&str>) -> String {
    let whole = Value::from(vec![sorted(call), root.into(), client.into(), contexts.into()]);
    Sha256::digest(whole.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> =
                map.iter().map(|(key, it)| (key.clone(), sorted(it))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_ignores_key_order_and_nothing_else() {
        let call = json!({ "tasks": [{ "label": "a", "prompt": "b" }], "concurrency": 1 });
        let turned = json!({ "concurrency": 1, "tasks": [{ "prompt": "b", "label": "a" }] });
        let name = call_hash(&call, "/tree", "client", None);
        assert_eq!(name, call_hash(&turned, "/tree", "client", None));
        let other = json!({ "concurrency": 2, "tasks": [{ "prompt": "b", "label": "a" }] });
        for different in [
            call_hash(&other, "/tree", "client", None),
            call_hash(&call, "/tree2", "client", None),
            call_hash(&call, "/tree", "client2", None),
            call_hash(&call, "/tree", "client", Some("x")),
        ] {
            assert_ne!(name, different);
        }
    }
}
