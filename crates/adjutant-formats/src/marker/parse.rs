//! Parses the markers of a text into delegations and reports the invalid ones.

use std::fmt;
use std::ops::Range;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::scan::{MarkerCandidate, PREFIX, candidates};
use crate::excerpt::excerpt;
use crate::ids::story_child;

/// The maximum estimate of one marker, in hours. Inclusive.
///
/// Half a working year; a larger number is a mistake, not a subtask.
pub const MAX_HOURS: u32 = 1000;

/// The maximum number of characters of an invalid marker quoted in its message.
const SHOWN_CHARS: usize = 80;

/// The story that a text belongs to, and the limits for its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerContext<'a> {
    /// The story whose agent wrote the text.
    pub parent: &'a str,
    /// The depth of that agent; its children are one level deeper.
    pub depth: u32,
    /// The number of the first child in this text; numbers are never reused.
    pub start: u32,
    /// The maximum number of markers in one text. Inclusive.
    pub max: usize,
}

/// The markers of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ParsedMarkers {
    /// The valid markers in text order; empty if there are too many.
    pub delegations: Vec<Marker>,
    /// The invalid markers in text order.
    pub errors: Vec<InvalidMarker>,
}

/// A valid marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Marker {
    /// The task as written, trimmed.
    pub description: String,
    /// The estimate in hours, from 1 to [`MAX_HOURS`].
    pub estimated_hours: u32,
    /// The id of the story whose agent wrote the marker.
    pub parent_story_id: String,
    /// The id of the child story.
    pub child_story_id: String,
    /// The depth of the child.
    pub depth: u32,
    /// The byte range of the marker in the text.
    #[serde(skip)]
    pub span: Range<usize>,
}

/// A text that starts like a marker but is not valid.
///
/// Serialized with the fields `text`, `reason` and `offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMarker {
    /// The complete text.
    pub text: String,
    /// Why it is invalid.
    pub cause: InvalidMarkerCause,
    /// Its byte range in the text.
    pub span: Range<usize>,
}

/// Why a marker is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMarkerCause {
    /// The bracket is not closed on the same line.
    Unclosed,
    /// No colon separates a description from hours.
    NoHours,
    /// The hours are not a whole number from 0 to [`MAX_HOURS`].
    BadHours,
    /// The description is empty.
    NoDescription,
    /// The text has more markers than allowed; this is the first one over the limit.
    TooMany {
        /// The number of markers.
        count: usize,
        /// The maximum.
        max: usize,
    },
}

impl InvalidMarker {
    /// Returns the byte offset of the text.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.span.start
    }

    /// Returns the problem as text for people and models.
    #[must_use]
    pub fn reason(&self) -> String {
        let hint = match self.cause {
            InvalidMarkerCause::TooMany { count, max } => {
                return format!("Too many delegations ({count}). Maximum: {max}");
            }
            InvalidMarkerCause::Unclosed => "the bracket is not closed on its line".to_owned(),
            InvalidMarkerCause::NoHours => "the hours are missing".to_owned(),
            InvalidMarkerCause::BadHours => {
                format!("hours must be a whole number from 0 to {MAX_HOURS}")
            }
            InvalidMarkerCause::NoDescription => "the description is empty".to_owned(),
        };
        let shown = excerpt(&self.text, SHOWN_CHARS);
        format!("Invalid delegation syntax: {shown} ({hint})")
    }
}

impl fmt::Display for InvalidMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}

impl Serialize for InvalidMarker {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut reject = serializer.serialize_struct("Reject", 3)?;
        reject.serialize_field("text", &self.text)?;
        reject.serialize_field("reason", &self.reason())?;
        reject.serialize_field("offset", &self.offset())?;
        reject.end()
    }
}

/// Parses the markers of `text`.
///
/// The last colon separates the hours. Brackets in the description must be balanced; a backslash before a
/// bracket makes it plain text and stays in the description. Markers in fenced, indented or inline code, on a
/// quoted line or inside quotation marks are ignored. With more than `request.max` markers the whole text is
/// refused: that is more likely a loop than a plan, and dropping the surplus would hide it.
#[must_use]
pub fn parse(text: &str, request: &MarkerContext<'_>) -> ParsedMarkers {
    let mut parsed = ParsedMarkers::default();
    for candidate in candidates(text) {
        match read(text, &candidate) {
            Ok((description, hours)) => {
                let nth = parsed.delegations.len();
                parsed.delegations.push(marker(description, hours, nth, candidate.span, request));
            }
            Err(cause) => parsed.errors.push(reject(text, candidate.span, cause)),
        }
    }
    refuse_surplus(text, request.max, &mut parsed);
    parsed
}

fn read<'a>(
    text: &'a str,
    candidate: &MarkerCandidate,
) -> Result<(&'a str, u32), InvalidMarkerCause> {
    if !candidate.is_closed {
        return Err(InvalidMarkerCause::Unclosed);
    }
    let inner = &text[candidate.span.start + PREFIX.len()..candidate.span.end - 1];
    let (description, hours) = inner.rsplit_once(':').ok_or(InvalidMarkerCause::NoHours)?;
    let description = description.trim();
    let hours = hours.trim();
    // `str::parse` alone would accept a sign.
    let is_number = hours.bytes().all(|byte| byte.is_ascii_digit());
    let hours: Option<u32> = hours.parse().ok().filter(|it| is_number && *it <= MAX_HOURS);
    // Zero counts as one hour, just as PRDs round hours up.
    let hours = hours.map(|hours| hours.max(1));
    match (description, hours) {
        (_, None) => Err(InvalidMarkerCause::BadHours),
        ("", Some(_)) => Err(InvalidMarkerCause::NoDescription),
        (description, Some(hours)) => Ok((description, hours)),
    }
}

fn marker(
    description: &str,
    estimated_hours: u32,
    nth: usize,
    span: Range<usize>,
    request: &MarkerContext<'_>,
) -> Marker {
    // Saturation is unreachable: a run ends long before it has four billion children.
    let number = request.start.saturating_add(u32::try_from(nth).unwrap_or(u32::MAX));
    Marker {
        description: description.to_owned(),
        estimated_hours,
        parent_story_id: request.parent.to_owned(),
        child_story_id: story_child(request.parent, number),
        depth: request.depth.saturating_add(1),
        span,
    }
}

fn reject(text: &str, span: Range<usize>, cause: InvalidMarkerCause) -> InvalidMarker {
    InvalidMarker { text: text[span.clone()].to_owned(), cause, span }
}

fn refuse_surplus(text: &str, max: usize, parsed: &mut ParsedMarkers) {
    let count = parsed.delegations.len();
    let Some(first) = parsed.delegations.get(max) else { return };
    let surplus = reject(text, first.span.clone(), InvalidMarkerCause::TooMany { count, max });
    let at = parsed.errors.partition_point(|error| error.offset() < surplus.offset());
    parsed.errors.insert(at, surplus);
    parsed.delegations.clear();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: MarkerContext<'_> =
        MarkerContext { parent: "US-007", depth: 0, start: 1, max: 10 };

    fn check(text: &str) -> String {
        let parsed = parse(text, &REQUEST);
        let markers = parsed.delegations.iter().map(|it| {
            let Marker { child_story_id, estimated_hours, description, .. } = it;
            format!("{child_story_id} {estimated_hours} h {description}")
        });
        let rejects = parsed.errors.iter().map(|it| format!("{}: {it}", it.offset()));
        markers.chain(rejects).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn requirement_55_the_response_of_the_design_gives_the_parsed_result_of_the_design() {
        let text = "I'll break this authentication feature into 3 subtasks:\n\n\
            [delegate:Implement JWT token generation and validation:4]\n\
            [delegate:Create login UI component with form validation:3]\n\
            [delegate:Write integration tests for auth flow:2]\n\n\
            Each subtask will run in parallel and report back results.";
        let parsed = parse(text, &REQUEST);
        insta::assert_snapshot!(serde_json::to_string_pretty(&parsed).unwrap(), @r#"
        {
          "delegations": [
            {
              "description": "Implement JWT token generation and validation",
              "estimated_hours": 4,
              "parent_story_id": "US-007",
              "child_story_id": "US-007-DEL-001",
              "depth": 1
            },
            {
              "description": "Create login UI component with form validation",
              "estimated_hours": 3,
              "parent_story_id": "US-007",
              "child_story_id": "US-007-DEL-002",
              "depth": 1
            },
            {
              "description": "Write integration tests for auth flow",
              "estimated_hours": 2,
              "parent_story_id": "US-007",
              "child_story_id": "US-007-DEL-003",
              "depth": 1
            }
          ],
          "errors": []
        }
        "#);
    }

    #[test]
    fn numbers_and_depth_go_on_where_the_request_says() {
        // D13: child numbers must not restart with every text.
        let request = MarkerContext { parent: "US-007-DEL-002", depth: 1, start: 7, max: 10 };
        let parsed = parse("[delegate:a:1][delegate:b:2]", &request);
        let ids: Vec<_> = parsed.delegations.iter().map(|it| it.child_story_id.as_str()).collect();
        assert_eq!(ids, ["US-007-DEL-002-DEL-007", "US-007-DEL-002-DEL-008"]);
        assert!(parsed.delegations.iter().all(|it| it.depth == 2));
    }

    #[test]
    fn d15_descriptions_may_hold_what_people_write() {
        insta::assert_snapshot!(check(r#"Parts:
            [delegate: Fix: the parser, part 2 : 4 ]
            [delegate:Handle a[0] and m["k"]:1000]
            [delegate:Escape C:\temp and "quotes" and \] too:02]
            [delegate:Grüße 完了 🚀:1]
            two [delegate:on:1] one [delegate:line:2]
        "#), @r#"
        US-007-DEL-001 4 h Fix: the parser, part 2
        US-007-DEL-002 1000 h Handle a[0] and m["k"]
        US-007-DEL-003 2 h Escape C:\temp and "quotes" and \] too
        US-007-DEL-004 1 h Grüße 完了 🚀
        US-007-DEL-005 1 h on
        US-007-DEL-006 2 h line
        "#);
    }

    #[test]
    fn zero_hours_count_as_one_and_blanks_around_hours_do_not_count() {
        insta::assert_snapshot!(check("\
[delegate:a:0] [delegate:b: 4 ] [delegate:c:\t2] [delegate:d:007] [delegate:e:1 0]"), @r"
        US-007-DEL-001 1 h a
        US-007-DEL-002 4 h b
        US-007-DEL-003 2 h c
        US-007-DEL-004 7 h d
        65: Invalid delegation syntax: [delegate:e:1 0] (hours must be a whole number from 0 to 1000)
        ");
    }

    #[test]
    fn what_is_no_marker_is_reported_with_its_place() {
        insta::assert_snapshot!(check("\
[delegate:a:0h] [delegate:a:2.5] [delegate:a:-1] [delegate:a:] [delegate:a:+1]
[delegate:a:1001] [delegate:a:99999999999999999999] [delegate:a:4h] [delegate:a:٣]
[delegate:a] [delegate:] [delegate::3] [delegate:  :3]
[delegate:subtask_description:estimated_hours]
[delegate:not closed
[delegate:good:2]"), @r"
        US-007-DEL-001 2 h good
        0: Invalid delegation syntax: [delegate:a:0h] (hours must be a whole number from 0 to 1000)
        16: Invalid delegation syntax: [delegate:a:2.5] (hours must be a whole number from 0 to 1000)
        33: Invalid delegation syntax: [delegate:a:-1] (hours must be a whole number from 0 to 1000)
        49: Invalid delegation syntax: [delegate:a:] (hours must be a whole number from 0 to 1000)
        63: Invalid delegation syntax: [delegate:a:+1] (hours must be a whole number from 0 to 1000)
        79: Invalid delegation syntax: [delegate:a:1001] (hours must be a whole number from 0 to 1000)
        97: Invalid delegation syntax: [delegate:a:99999999999999999999] (hours must be a whole number from 0 to 1000)
        131: Invalid delegation syntax: [delegate:a:4h] (hours must be a whole number from 0 to 1000)
        147: Invalid delegation syntax: [delegate:a:٣] (hours must be a whole number from 0 to 1000)
        163: Invalid delegation syntax: [delegate:a] (the hours are missing)
        176: Invalid delegation syntax: [delegate:] (the hours are missing)
        188: Invalid delegation syntax: [delegate::3] (the description is empty)
        202: Invalid delegation syntax: [delegate:  :3] (the description is empty)
        218: Invalid delegation syntax: [delegate:subtask_description:estimated_hours] (hours must be a whole number from 0 to 1000)
        265: Invalid delegation syntax: [delegate:not closed (the bracket is not closed on its line)
        ");
    }

    #[test]
    fn a_long_reject_is_cut_in_its_reason_and_kept_in_its_text() {
        let text = format!("[delegate:{}:x]", "é".repeat(500));
        let reject = &parse(&text, &REQUEST).errors[0];
        assert_eq!(reject.text, text);
        assert!(reject.reason().chars().count() < 200, "{reject}");
        assert!(reject.reason().starts_with("Invalid delegation syntax: [delegate:éé"));
    }

    #[test]
    fn a_reject_is_printed_with_text_reason_and_offset() {
        let parsed = parse("é [delegate:a]", &REQUEST);
        insta::assert_snapshot!(serde_json::to_string_pretty(&parsed).unwrap(), @r#"
        {
          "delegations": [],
          "errors": [
            {
              "text": "[delegate:a]",
              "reason": "Invalid delegation syntax: [delegate:a] (the hours are missing)",
              "offset": 3
            }
          ]
        }
        "#);
    }

    #[test]
    fn one_marker_too_many_refuses_the_whole_text() {
        assert_eq!(parse(&"[delegate:a:1]".repeat(10), &REQUEST).delegations.len(), 10);
        let text = format!("[delegate:b]{}[delegate:c]", "[delegate:a:1]".repeat(11));
        insta::assert_snapshot!(check(&text), @r"
        0: Invalid delegation syntax: [delegate:b] (the hours are missing)
        152: Too many delegations (11). Maximum: 10
        166: Invalid delegation syntax: [delegate:c] (the hours are missing)
        ");
        let request = MarkerContext { max: 11, ..REQUEST };
        assert_eq!(parse(&text, &request).delegations.len(), 11);
        let request = MarkerContext { max: 0, ..REQUEST };
        assert_eq!(
            parse("[delegate:a:1]", &request).errors[0].cause,
            InvalidMarkerCause::TooMany { count: 1, max: 0 }
        );
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let request = MarkerContext { depth: u32::MAX, start: u32::MAX, ..REQUEST };
        assert_eq!(parse("[delegate:a:1][delegate:b:1]", &request).delegations.len(), 2);
    }

    fn spans(parsed: &ParsedMarkers) -> Vec<Range<usize>> {
        let markers = parsed.delegations.iter().map(|it| it.span.clone());
        let rejects = parsed.errors.iter().map(|it| it.span.clone());
        let mut spans: Vec<_> = markers.chain(rejects).collect();
        spans.sort_by_key(|span| span.start);
        spans
    }

    fn markdown() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "\\[delegate:[a-zé:\\[\\]` ]{0,8}:[0-9]{1,3}\\]",
            4 => Just("[delegate:".to_owned()),
            4 => "[\\[\\]`~:\\\\ \\n\\r]{1,4}",
            1 => "```[a-z]{0,3}\\n",
            1 => "\\n(> |    |- |\t|1\\. )",
            2 => "\\PC{0,6}",
        ];
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_text_is_lost_and_every_span_slices_back(text in markdown(), max in 0_usize..12) {
            let parsed = parse(&text, &MarkerContext { max, ..REQUEST });
            let mut whole = String::new();
            for span in spans(&parsed) {
                prop_assert!(span.start >= whole.len(), "spans overlap");
                whole.push_str(&text[whole.len()..span.start]);
                whole.push_str(&text[span]);
            }
            whole.push_str(&text[whole.len()..]);
            prop_assert_eq!(&whole, &text);
            for reject in &parsed.errors {
                prop_assert_eq!(&text[reject.span.clone()], reject.text.as_str());
                prop_assert!(reject.text.starts_with(PREFIX));
            }
            for marker in &parsed.delegations {
                prop_assert!(text[marker.span.clone()].contains(&marker.description));
            }
        }

        #[test]
        fn a_marker_read_alone_says_the_same(text in markdown()) {
            for marker in parse(&text, &MarkerContext { max: usize::MAX, ..REQUEST }).delegations {
                let alone = parse(&text[marker.span.clone()], &REQUEST);
                prop_assert_eq!(&alone.delegations[0].description, &marker.description);
                prop_assert_eq!(alone.delegations[0].estimated_hours, marker.estimated_hours);
            }
        }

        #[test]
        fn nothing_counts_inside_a_fence(text in "[a-z\\[\\]: \\n]{0,40}", hours in 1_u32..9) {
            let fenced = format!("```text\n{text}[delegate:a:{hours}]\n```\n");
            prop_assert_eq!(parse(&fenced, &REQUEST), ParsedMarkers::default());
        }

        #[test]
        fn any_description_on_a_line_survives(text in "[a-zA-Zé0-9 ,.:()'\"]{0,40}[a-z]") {
            let parsed = parse(&format!("Do [delegate:{text}:3] now"), &REQUEST);
            prop_assert_eq!(&parsed.delegations[0].description, text.trim());
        }
    }
}
