//! Colours. They never carry meaning alone: every mark has a word beside it.
//!
//! A [`Palette`] says whether text may be coloured at all, a [`TextStyle`] what role a piece of
//! text has.

use adjutant_core::{DelegationState, Outcome};

/// Whether text may be coloured. The caller knows the terminal and `NO_COLOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// No colours.
    #[default]
    Plain,
    /// The terminal's ANSI palette.
    Ansi,
}

/// The role of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    /// A success.
    Good,
    /// A partial success, or something to look at.
    Warning,
    /// A failure.
    Bad,
    /// Work in progress.
    Active,
    /// Less important text.
    Quiet,
    /// A heading.
    Strong,
}

impl Palette {
    /// Returns `text` in the colour of `style`.
    #[must_use]
    pub fn paint(self, style: TextStyle, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => {
                let code = match style {
                    TextStyle::Good => "32",
                    TextStyle::Warning => "33",
                    TextStyle::Bad => "31",
                    TextStyle::Active => "36",
                    TextStyle::Quiet => "2",
                    TextStyle::Strong => "1",
                };
                format!("\u{1b}[{code}m{text}\u{1b}[0m")
            }
        }
    }
}

impl TextStyle {
    /// Returns the style of a state.
    #[must_use]
    pub const fn of(state: &DelegationState) -> Self {
        match state {
            DelegationState::AwaitingApproval => Self::Warning,
            DelegationState::Queued => Self::Quiet,
            DelegationState::Running => Self::Active,
            DelegationState::Ended(Outcome::Completed) => Self::Good,
            DelegationState::Ended(Outcome::Partial | Outcome::Blocked | Outcome::Cancelled) => {
                Self::Warning
            }
            DelegationState::Ended(Outcome::Failed | Outcome::Refused) => Self::Bad,
        }
    }
}
