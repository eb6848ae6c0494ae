//! The types of a return, serialized exactly as the return format standard prescribes.
//!
//! Nothing here validates. Values come from the engine, from the journal or, through `validate`, from a
//! model.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code::ErrorCode;
use crate::ids::{AgentName, SessionId};

/// The standard result of a delegation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// How the work ended, as the agent reports it.
    pub status: ReturnStatus,
    /// Two to five sentences about the outcome.
    pub summary: String,
    /// The files that contain the work.
    pub artifacts: Vec<Artifact>,
    /// Which agent worked, where in the delegation tree, and for how long.
    pub metadata: ReturnMetadata,
    /// What went wrong; empty when completed.
    #[serde(default)]
    pub errors: Vec<ReturnError>,
    /// What to do next, in one or two sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_steps: Option<String>,
}

/// A file that contains results of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// What the file is.
    #[serde(rename = "type")]
    pub kind: ArtifactKind,
    /// Its path, relative to the workspace root.
    pub path: String,
    /// Its content in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Which agent worked, where in the delegation tree, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnMetadata {
    /// The delegation that this return ends.
    pub session_id: SessionId,
    /// Whole seconds from start to end.
    pub duration_seconds: u64,
    /// The agent that worked.
    pub agent_type: AgentName,
    /// The number of edges from the root of the tree.
    pub delegation_depth: u32,
    /// Agent names from the root to the delegate, both included.
    pub delegation_path: Vec<AgentName>,
}

/// One error of the work, with a recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnError {
    /// The category of the error.
    #[serde(rename = "type")]
    pub kind: OpenWord<ErrorType>,
    /// What happened, as text for people.
    pub message: String,
    /// What happened, as a code for programs.
    pub code: OpenWord<ErrorCode>,
    /// Whether a retry can help.
    pub recoverable: bool,
    /// What the parent should do about it.
    pub recommendation: String,
}

/// A value of a closed list that is serialized as one fixed word.
pub trait WireWord: Copy {
    /// Returns the serialized word.
    fn word(self) -> &'static str;

    /// Returns the value whose word is `text`. Case-sensitive.
    fn from_word(text: &str) -> Option<Self>;
}

impl WireWord for ErrorCode {
    fn word(self) -> &'static str {
        self.as_str()
    }

    fn from_word(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

macro_rules! words {
    (
        $(#[doc = $about:literal])+
        $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $text:literal),+ $(,)? }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// All values, in the order of the standard.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the serialized word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl WireWord for $name {
            fn word(self) -> &'static str {
                self.as_str()
            }

            fn from_word(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The status of a return: how the delegated work ended.
    ReturnStatus {
        /// All work is done.
        Completed = "completed",
        /// There is no usable result.
        Failed = "failed",
        /// Some of the work is done and can be used.
        Partial = "partial",
        /// The work cannot continue until something outside it is resolved.
        Blocked = "blocked",
    }
}

words! {
    /// The kind of an artifact.
    ArtifactKind {
        /// Findings.
        Research = "research",
        /// A plan for later work.
        Plan = "plan",
        /// Code or other work products.
        Implementation = "implementation",
        /// A summary of other work.
        Summary = "summary",
        /// Documentation for users.
        Documentation = "documentation",
    }
}

words! {
    /// The error categories of the standard.
    ErrorType {
        /// Time ran out.
        Timeout = "timeout",
        /// An input or a result violated its rules.
        Validation = "validation",
        /// The work itself failed.
        Execution = "execution",
        /// A required tool is not available.
        ToolUnavailable = "tool_unavailable",
    }
}

/// A known word, or any other text exactly as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenWord<T> {
    /// A known word.
    Known(T),
    /// Any other text.
    Other(String),
}

impl<T: WireWord> OpenWord<T> {
    /// Returns the known word for `text`, or keeps the text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        T::from_word(text).map_or_else(|| Self::Other(text.to_owned()), Self::Known)
    }

    /// Returns the serialized text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.word(),
            Self::Other(text) => text,
        }
    }
}

impl<T> From<T> for OpenWord<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: WireWord> fmt::Display for OpenWord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: WireWord> Serialize for OpenWord<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: WireWord> Deserialize<'de> for OpenWord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self::new(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_standard_are_spelled_as_in_requirements_26_28_and_30() {
        fn spelled<T: WireWord>(all: &[T]) -> Vec<&'static str> {
            all.iter().map(|word| word.word()).collect()
        }
        assert_eq!(spelled(ReturnStatus::ALL), ["completed", "failed", "partial", "blocked"]);
        assert_eq!(
            spelled(ArtifactKind::ALL),
            ["research", "plan", "implementation", "summary", "documentation"]
        );
        assert_eq!(
            spelled(ErrorType::ALL),
            ["timeout", "validation", "execution", "tool_unavailable"]
        );
    }

    #[test]
    fn a_status_is_case_sensitive() {
        assert_eq!(ReturnStatus::from_word("completed"), Some(ReturnStatus::Completed));
        assert_eq!(ReturnStatus::from_word("Completed"), None);
        assert_eq!(ReturnStatus::from_word(" completed"), None);
    }

    #[test]
    fn an_open_word_survives_the_wire_known_or_not() {
        for (text, expected) in [
            ("\"TIMEOUT\"", OpenWord::Known(ErrorCode::Timeout)),
            ("\"OUT_OF_COFFEE\"", OpenWord::Other("OUT_OF_COFFEE".to_owned())),
        ] {
            let word: OpenWord<ErrorCode> = serde_json::from_str(text).unwrap();
            assert_eq!(word, expected);
            assert_eq!(serde_json::to_string(&word).unwrap(), text);
        }
    }
}
