//! Looks up the fields of an object and reports faults with their path.

use std::borrow::Cow;

use super::fault::{FieldFault, FieldProblem};
use super::value::{FieldContent, FieldValue};
use crate::nearest;

/// An object and the path to it, for reading its fields.
#[derive(Clone, Debug)]
pub struct FieldReader<'a> {
    object: FieldValue<'a>,
    path: String,
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct NamedField<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// The byte offset of the name; 0 for a value without a document.
    pub at: usize,
    /// Its value.
    pub value: FieldValue<'a>,
}

impl<'a> FieldReader<'a> {
    /// Makes a reader for `object`, whose path is `path`; empty for a whole document.
    pub fn new(object: FieldValue<'a>, path: impl Into<String>) -> Result<Self, FieldProblem> {
        if object.content() == FieldContent::Object {
            Ok(Self { object, path: path.into() })
        } else {
            Err(object.mismatch("an object"))
        }
    }

    /// Returns a field; a `null` field is returned too.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<FieldValue<'a>> {
        self.object.member(name)
    }

    /// Returns a field unless it is `null`, which counts as absent for optional fields.
    #[must_use]
    pub fn non_null(&self, name: &str) -> Option<FieldValue<'a>> {
        self.get(name).filter(|value| !value.is_null())
    }

    /// Reads a field if it is present; `null` is passed to the conversion.
    pub fn read<T>(
        &self,
        name: &str,
        convert: impl FnOnce(FieldValue<'a>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, FieldFault> {
        self.convert(name, self.get(name), convert)
    }

    /// Reads a field if it is present; `null` counts as absent.
    pub fn optional<T>(
        &self,
        name: &str,
        convert: impl FnOnce(FieldValue<'a>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, FieldFault> {
        self.convert(name, self.non_null(name), convert)
    }

    /// Reads a required field; `null` is passed to the conversion.
    pub fn require<T>(
        &self,
        name: &str,
        convert: impl FnOnce(FieldValue<'a>) -> Result<T, FieldProblem>,
    ) -> Result<T, FieldFault> {
        self.read(name, convert)?.ok_or_else(|| self.fault(name, FieldProblem::Missing))
    }

    /// Reads the items of a list and collects the faults of all items; an absent or `null` list is empty.
    pub fn read_items<T>(
        &self,
        name: &str,
        convert: impl Fn(FieldValue<'a>) -> Result<T, FieldProblem>,
    ) -> Result<Vec<T>, Vec<FieldFault>> {
        let items = self.optional(name, FieldValue::items).map_err(|fault| vec![fault])?;
        let (mut read, mut faults) = (Vec::new(), Vec::new());
        for (nth, item) in items.into_iter().flatten().enumerate() {
            match convert(item) {
                Ok(value) => read.push(value),
                Err(problem) => {
                    let path = format!("{}[{nth}]", self.path(name));
                    faults.push(FieldFault { path, at: item.offset(), problem });
                }
            }
        }
        if faults.is_empty() { Ok(read) } else { Err(faults) }
    }

    /// Makes a reader for the `nth` item of the list `name`, which must be an object.
    pub fn item(&self, name: &str, nth: usize, value: FieldValue<'a>) -> Result<Self, FieldFault> {
        let path = format!("{}[{nth}]", self.path(name));
        Self::new(value, &*path).map_err(|problem| FieldFault { path, at: value.offset(), problem })
    }

    /// Makes a fault of a field.
    pub fn fault(&self, name: &str, problem: impl Into<FieldProblem>) -> FieldFault {
        FieldFault { path: self.path(name), at: self.at_field(name), problem: problem.into() }
    }

    /// Returns the byte offset of a field, or of the object if it has no such field.
    #[must_use]
    pub fn at_field(&self, name: &str) -> usize {
        self.get(name).unwrap_or(self.object).offset()
    }

    /// Returns the path of a field.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns the byte offset of the object.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.object.offset()
    }

    /// Returns the fields whose names are not in `known`.
    pub fn unknown(&self, known: &[&str]) -> Vec<NamedField<'a>> {
        let mut fields = self.object.members();
        fields.retain(|field| !known.contains(&&*field.name));
        fields
    }

    fn convert<T>(
        &self,
        name: &str,
        value: Option<FieldValue<'a>>,
        convert: impl FnOnce(FieldValue<'a>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, FieldFault> {
        value.map(convert).transpose().map_err(|problem| self.fault(name, problem))
    }
}

/// Returns `, did you mean …?` with the known word closest to `word`, or an empty string.
#[must_use]
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    nearest(word, known.iter().copied())
        .map_or_else(String::new, |known| format!(", did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::document::{parse_json, parse_toml};

    /// Reads a fixed set of fields and returns their faults, each with its position.
    fn check(value: FieldValue<'_>) -> String {
        let Ok(fields) = FieldReader::new(value, "call") else { return "no object".to_owned() };
        let kinds = [("fast", 1), ("slow", 2)];
        let mut faults: Vec<FieldFault> =
            fields.read_items("list", FieldValue::string).err().unwrap_or_default();
        faults.extend(fields.require("name", FieldValue::non_blank_string).err());
        faults.extend(fields.require("blank", FieldValue::non_blank_string).err());
        faults.extend(fields.read("count", |count| count.integer(1..=9)).err());
        faults.extend(fields.read("kind", |kind| kind.choice(&kinds)).err());
        faults.extend(fields.optional("nothing", FieldValue::boolean).err());
        faults.extend(fields.read("nothing", FieldValue::boolean).err());
        let lines = faults.iter().map(|fault| format!("{} {fault}", fault.at));
        let known = ["list", "blank", "count", "kind", "nothing"];
        let unknown = fields.unknown(&known).into_iter();
        let unknown = unknown.map(|field| format!("{} unknown {}", field.at, field.name));
        lines.chain(unknown).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_fault_names_the_path_and_the_place_wherever_the_value_comes_from() {
        let text = r#"{"list": ["a", 1], "blank": " ", "count": 10, "kind": "fst", "nothing": null, "names": 1}"#;
        let node = parse_json(text).unwrap();
        let in_text = check(FieldValue::Text(&node, text));
        insta::assert_snapshot!(in_text, @r"
        15 `call.list[1]` must be a string, not a number
        0 `call.name` is required
        28 `call.blank` must not be blank
        42 `call.count` must be a whole number from 1 to 9, not 10
        54 `call.kind` must be one of fast, slow, not `fst`, did you mean `fast`?
        72 `call.nothing` must be true or false, not null
        78 unknown names
        ");
        let value: Value = serde_json::from_str(text).unwrap();
        let without_places = |said: &str| {
            let words = said.lines().map(|line| line.split_once(' ').unwrap().1);
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without_places(&check(FieldValue::Json(&value))), without_places(&in_text));
    }

    #[test]
    fn a_table_of_toml_is_read_in_the_order_of_the_file() {
        let text = "b = 1\n[z]\ndeep.er = { k = [1.5, 'x'] }\n[[list]]\na = 2026-01-02\n[[list]]\n";
        let document = parse_toml(text).unwrap();
        let value = FieldValue::Text(&document, text);
        assert_eq!(
            value.to_json().to_string(),
            r#"{"b":1,"z":{"deep":{"er":{"k":[1.5,"x"]}}},"list":[{"a":"2026-01-02"},{}]}"#
        );
        let list = FieldReader::new(value, "").unwrap().get("list").unwrap().items().unwrap();
        assert_eq!(list.into_iter().map(FieldValue::offset).collect::<Vec<_>>(), [39, 63]);
        for (text, column) in [("a = nan", 5), ("\"\\x41\" = 1", 1)] {
            assert_eq!(parse_toml(text).unwrap_err().column, column, "{text}");
        }
    }
}
