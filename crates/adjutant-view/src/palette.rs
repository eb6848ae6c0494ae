//! Colour, which never carries meaning alone: every mark has a word beside it.

use adjutant_core::{Outcome, State};

/// Whether text may be coloured; the caller knows the terminal and `NO_COLOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// Text alone.
    #[default]
    Plain,
    /// With the terminal's own palette.
    Ansi,
}

/// What a piece of text is, for choosing its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    /// Done well.
    Good,
    /// Done in part, or to be looked at.
    Warning,
    /// Gone wrong.
    Bad,
    /// Under way.
    Active,
    /// Of less interest.
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
    pub const fn of(state: &State) -> Self {
        match state {
            State::AwaitingApproval => Self::Warning,
            State::Queued => Self::Quiet,
            State::Running => Self::Active,
            State::Ended(Outcome::Completed) => Self::Good,
            State::Ended(Outcome::Partial | Outcome::Blocked | Outcome::Cancelled) => Self::Warning,
            State::Ended(Outcome::Failed | Outcome::Refused) => Self::Bad,
        }
    }
}
