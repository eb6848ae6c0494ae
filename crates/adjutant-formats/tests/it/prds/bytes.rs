//! Whatever a PRD looks like, an outcome changes only what it is about.

use adjutant_formats::outcome::Outcome;
use adjutant_formats::prd::{Prd, PrdChildOutcome, PrdOutcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{child, done};

/// Members that Adjutant does not know; edits must keep them byte for byte.
const FOREIGN: [&str; 8] = [
    "\"theirs\"#:#1.0e3",
    "\"big\"#:#123456789012345678901234567890",
    "\"text\"#:#\"}],\\\\ \\u00e9 \\\" 漢\u{1f600}\"",
    "\"nested\"#:#{#\"passes\"#:#false#,#\"adjutant\"#:#[#]#}",
    "\"p\\u0061sse\"#:#-0.0",
    "\"notes\"#:#\"two\\nlines\"",
    "\"empty\"#:#{}",
    "\"list\"#:#[#1#,#[#]#,#null#]",
];

/// A story as it is generated: the number of its entry is its id.
#[derive(Clone, Debug)]
struct Made {
    passes: Option<bool>,
    adjutant: Option<&'static str>,
    foreign: Vec<usize>,
    /// Which member comes first, by rotation.
    turn: usize,
}

/// A PRD as text, and the positions of the parts of one story.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    /// From the bracket of the story to behind its closing one.
    entry: std::ops::Range<usize>,
    passes: Option<std::ops::Range<usize>>,
    adjutant: Option<std::ops::Range<usize>>,
    /// Behind the last member.
    end: usize,
}

/// Puts a text together; `#` stands for any blanks.
struct Writer<'a> {
    text: String,
    gaps: &'a [String],
    next: usize,
}

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        for (nth, part) in text.split('#').enumerate() {
            if nth > 0 {
                self.text += &self.gaps[self.next % self.gaps.len()];
                self.next += 1;
            }
            self.text += part;
        }
    }
}

fn written(
    stories: &[Made],
    about: usize,
    gaps: &[String],
    (has_mark, list, tail): (bool, &str, &str),
) -> Written {
    let mut out = Writer { text: String::new(), gaps, next: 0 };
    let mut at = Written { text: String::new(), entry: 0..0, passes: None, adjutant: None, end: 0 };
    if has_mark {
        out.text.push('\u{feff}');
    }
    out.put(&format!("#{{#\"project\"#:#\"x\"#,#\"{list}\"#:#["));
    for (nth, story) in stories.iter().enumerate() {
        out.put(if nth > 0 { "#,#" } else { "#" });
        let start = out.text.len();
        let mut members = vec![format!("\"id\"#:#\"S{nth}\""), "\"title\"#:#\"T\"".to_owned()];
        members.extend(story.passes.map(|passes| format!("\"passes\"#:#{passes}")));
        members.extend(story.adjutant.map(|it| format!("\"adjutant\"#:#{it}")));
        members.extend(story.foreign.iter().map(|nth| FOREIGN[*nth].to_owned()));
        let turn = story.turn % members.len();
        members.rotate_left(turn);
        out.put("{#");
        for (place, member) in members.iter().enumerate() {
            out.put(if place > 0 { "#,#" } else { "" });
            let (key, value) = member.split_once("#:#").unwrap();
            out.put(&format!("{key}#:#"));
            let from = out.text.len();
            out.put(value);
            let range = Some(from..out.text.len());
            match key {
                "\"passes\"" if nth == about => at.passes = range,
                "\"adjutant\"" if nth == about => at.adjutant = range,
                _ => {}
            }
        }
        let end = out.text.len();
        out.put("#}");
        if nth == about {
            (at.entry, at.end) = (start..out.text.len(), end);
        }
    }
    out.put(&format!("#]#,#\"after\"#:#{{#\"x\"#:#1.50#}}#}}{tail}"));
    Written { text: out.text, ..at }
}

fn gaps() -> impl Strategy<Value = Vec<String>> {
    let odd = prop::sample::select(vec![
        "", " ", "  ", "\t", "\n", "\r\n", "\n\n  ", "\n\t\t", "\r\n    ", "\r",
    ]);
    prop_oneof![
        Just(vec![String::new()]),
        Just(vec![" ".to_owned()]),
        Just(vec!["\n  ".to_owned()]),
        Just(vec!["\r\n\t".to_owned()]),
        prop::collection::vec(odd.prop_map(str::to_owned), 1..40),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let old = "{#\"run\"#:#\"old\"#,#\"status\"#:#\"partial\"#}";
    let adjutant = prop::sample::select(vec!["null", "{}", old]);
    (
        prop::option::of(any::<bool>()),
        prop::option::of(adjutant),
        prop::collection::btree_set(0..FOREIGN.len(), 0..4),
        any::<usize>(),
    )
        .prop_map(|(passes, adjutant, foreign, turn)| Made {
            passes,
            adjutant,
            foreign: foreign.into_iter().collect(),
            turn,
        })
}

fn outcome(story: &str, passes: bool, summary: String, children: usize) -> PrdOutcome {
    let id = |n: usize| format!("{story}-DEL-{n:03}");
    let mut made: Vec<PrdChildOutcome> = (1..=children).map(|n| child(&id(n), story)).collect();
    if children > 1 {
        // The second child's own child, named first.
        let of = id(2);
        made.insert(0, PrdChildOutcome { depth: 2, ..child(&format!("{of}-DEL-001"), &of) });
    }
    PrdOutcome { passes, summary, status: Outcome::Partial, children: made, ..done() }
}

fn case() -> impl Strategy<Value = (Written, usize, Vec<Made>, usize, bool, String)> {
    let frame = (
        any::<bool>(),
        prop::sample::select(vec!["userStories", "stories"]),
        prop::sample::select(vec!["", "\n", "\r\n", " \n\n"]),
    );
    (
        prop::collection::vec(made(), 1..6),
        any::<prop::sample::Index>(),
        gaps(),
        frame,
        0..4usize,
        any::<bool>(),
        any::<String>(),
    )
        .prop_map(|(stories, about, gaps, frame, children, passes, summary)| {
            let about = about.index(stories.len());
            (written(&stories, about, &gaps, frame), about, stories, children, passes, summary)
        })
}

/// Takes the values of the members that were there out of `new`, and checks that what stands
/// between them is what stood there.
fn between<'n>(old: &Written, new: &'n str, outcome: &PrdOutcome) -> Result<&'n str, String> {
    let mut holes: Vec<_> = [(&old.passes, "passes"), (&old.adjutant, "adjutant")]
        .into_iter()
        .filter_map(|(range, key)| range.clone().map(|range| (range, key)))
        .collect();
    holes.sort_by_key(|(range, _)| range.start);
    let (mut at, mut rest) = (0, new);
    for (range, key) in holes {
        let same = &old.text[at..range.start];
        rest = rest.strip_prefix(same).ok_or_else(|| format!("changed before {key}"))?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next().unwrap().map_err(|error| error.to_string())?;
        let read = values.byte_offset();
        rest = &rest[read..];
        let meant = if key == "passes" {
            value == json!(outcome.passes)
        } else {
            value["run"] == json!(outcome.run)
        };
        if !meant {
            return Err(format!("{key} is {value}"));
        }
        at = range.end;
    }
    rest = rest.strip_prefix(&old.text[at..old.end]).ok_or("changed within the entry")?;
    rest.strip_suffix(&old.text[old.entry.end..])
        .ok_or_else(|| "changed behind the entry".to_owned())
}

/// Checks that what was inserted are the members that were missing and the entries of children.
fn is_inserted(old: &Written, inserted: &str, children: usize) -> bool {
    let close = &old.text[old.end..old.entry.end];
    let mut wanted = Vec::new();
    wanted.extend(old.passes.is_none().then_some("passes"));
    wanted.extend(old.adjutant.is_none().then_some("adjutant"));
    let entries = children + usize::from(children > 1);
    let is_split = |at: usize| {
        let members = format!("{{\"\":0{}}}", &inserted[..at]);
        let list = format!("[0{}]", &inserted[at + close.len()..]);
        let members = serde_json::from_str::<serde_json::Map<String, Value>>(&members);
        let list = serde_json::from_str::<Vec<Value>>(&list);
        members.is_ok_and(|it| it.keys().skip(1).eq(wanted.iter()))
            && list.is_ok_and(|it| it.len() == entries + 1)
    };
    inserted.match_indices(close).any(|(at, _)| is_split(at))
}

/// Computes the expected value of the new text from that of the old one.
fn expected(old: &str, about: usize, outcome: &PrdOutcome, adjutant: &Value) -> Value {
    let mut value: Value = serde_json::from_str(old.trim_start_matches('\u{feff}')).unwrap();
    let list = if value.get("stories").is_some() { "stories" } else { "userStories" };
    let stories = value[list].as_array_mut().unwrap();
    stories[about]["passes"] = json!(outcome.passes);
    stories[about]["adjutant"] = adjutant.clone();
    let mut order: Vec<&PrdChildOutcome> =
        outcome.children.iter().filter(|it| it.depth == 1).collect();
    if let Some(deep) = outcome.children.iter().find(|it| it.depth == 2) {
        order.insert(2, deep);
    }
    for (nth, it) in order.into_iter().enumerate() {
        let entry = json!({
            "id": it.id, "title": it.title, "description": it.description,
            "estimatedHours": it.hours, "passes": it.passes, "dependencies": [],
            "delegationContext": {
                "parent_story_id": it.parent, "depth": it.depth,
                "can_delegate": it.can_delegate, "max_delegations": it.max_delegations,
            },
        });
        stories.insert(about + 1 + nth, entry);
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_edit_changes_no_other_byte(
        (old, about, stories, children, passes, summary) in case()
    ) {
        let id = format!("S{about}");
        let meant = outcome(&id, passes, summary, children);
        let new = Prd::read(&old.text).unwrap().edit(&id, &meant).unwrap();
        let inserted = between(&old, &new, &meant);
        prop_assert!(inserted.is_ok(), "{:?}\n{}\n{new}", inserted, old.text);
        prop_assert!(is_inserted(&old, inserted.unwrap(), children), "{}\n{new}", old.text);
        // The value differs by exactly the change.
        let value: Value = serde_json::from_str(new.trim_start_matches('\u{feff}')).unwrap();
        let read = Prd::read(&new).unwrap();
        let record: Value = serde_json::from_str(read.entry(&id).unwrap()).unwrap();
        let record = record["adjutant"].clone();
        prop_assert_eq!(&record["summary"], &json!(meant.summary));
        prop_assert_eq!(&value, &expected(&old.text, about, &meant, &record));
        // Twice is once.
        prop_assert_eq!(&read.edit(&id, &meant).unwrap(), &new);
        // Another outcome of the same run of children changes no other story and adds none.
        let other = outcome(&id, !passes, "Other.".to_owned(), children);
        let again = read.edit(&id, &other).unwrap();
        let again = Prd::read(&again).unwrap();
        prop_assert_eq!(again.story(&id).unwrap().passes, !passes);
        prop_assert_eq!(again.stories().len(), read.stories().len());
        for nth in (0..stories.len()).filter(|nth| *nth != about) {
            prop_assert_eq!(again.entry(&format!("S{nth}")), read.entry(&format!("S{nth}")));
        }
    }
}
