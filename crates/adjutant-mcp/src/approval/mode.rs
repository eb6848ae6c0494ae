//! The server's setting for calls that need approval.

use std::fmt;
use std::str::FromStr;

use adjutant_core::Usd;

/// What happens to a call that needs approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// The client asks the person if it can; otherwise the question waits until they answer in a terminal.
    #[default]
    Inbox,
    /// The call is refused, even if the client could ask.
    Deny,
    /// The call starts if the worst-case cost of all calls of clients today, including this one, is at most
    /// this amount. Otherwise as with `Inbox`.
    AutoBelow(Usd),
}

/// Who approves that results are merged into the user's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeApproval {
    /// A person, for each merge.
    Asked,
    /// No one; merges through clients are refused.
    Denied,
    /// No one; the person's own configuration allows every merge.
    Unasked,
}

impl ApprovalMode {
    /// Returns the mode for runs that write, given the mode that the server passes on and the person's own configuration.
    ///
    /// A project's file for a client can contain flags of the server, so the server's mode can only narrow what the
    /// person configured: nothing starts unasked without `write_unasked`, and never beyond the person's own amount.
    #[must_use]
    pub fn for_writers(self, own: Self, is_unasked_allowed: bool) -> Self {
        match (self, own) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::AutoBelow(flag), Self::AutoBelow(own)) if is_unasked_allowed => {
                Self::AutoBelow(flag.min(own))
            }
            (Self::Inbox | Self::AutoBelow(_), Self::Inbox | Self::AutoBelow(_)) => Self::Inbox,
        }
    }

    /// Returns who approves merges, given the server's mode, the person's own mode, and whether the person's own
    /// config.toml has `merge_unasked`. Flags of the server only narrow it.
    #[must_use]
    pub fn for_merges(self, own: Self, is_unasked_allowed: bool) -> MergeApproval {
        match (self, own) {
            (Self::Deny, _) | (_, Self::Deny) => MergeApproval::Denied,
            // `inbox` as a flag, where the person's own mode starts calls unasked, asks about everything.
            (Self::Inbox, Self::AutoBelow(_)) => MergeApproval::Asked,
            (Self::Inbox, Self::Inbox) | (Self::AutoBelow(_), Self::Inbox | Self::AutoBelow(_)) => {
                if is_unasked_allowed {
                    MergeApproval::Unasked
                } else {
                    MergeApproval::Asked
                }
            }
        }
    }
}

const EXPECTED: &str = "inbox, deny or auto-below USD, such as auto-below 0.50";

impl FromStr for ApprovalMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {EXPECTED}");
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["inbox"] => Ok(Self::Inbox),
            ["deny"] => Ok(Self::Deny),
            ["auto-below", amount] => {
                let dollars = amount.strip_prefix('$').unwrap_or(amount).parse::<f64>();
                let dollars = dollars.ok().filter(|it| it.is_finite() && *it > 0.0);
                let amount = dollars.and_then(Usd::from_dollars).filter(|it| *it > Usd::ZERO);
                amount.map(Self::AutoBelow).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ApprovalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inbox => f.write_str("inbox"),
            Self::Deny => f.write_str("deny"),
            Self::AutoBelow(amount) => write!(f, "auto-below {}", amount.as_dollars()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_parses_back_from_its_text() {
        for text in ["inbox", "deny", "auto-below 0.5", "auto-below 12", "auto-below 0.000001"] {
            assert_eq!(text.parse::<ApprovalMode>().unwrap().to_string(), text);
        }
        assert_eq!("auto-below $0.50".parse(), "auto-below 0.5".parse::<ApprovalMode>());
    }

    #[test]
    fn flags_of_the_server_only_narrow_what_starts_writers_unasked() {
        let mode = |text: &str| text.parse::<ApprovalMode>().unwrap();
        for (server, own, is_allowed, expected) in [
            ("auto-below 1", "auto-below 1", true, "auto-below 1"),
            ("auto-below 9", "auto-below 1", true, "auto-below 1"),
            ("auto-below 1", "auto-below 9", true, "auto-below 1"),
            ("auto-below 1", "auto-below 1", false, "inbox"),
            ("auto-below 9", "inbox", true, "inbox"),
            ("inbox", "auto-below 9", true, "inbox"),
            ("auto-below 9", "deny", true, "deny"),
            ("deny", "auto-below 9", true, "deny"),
        ] {
            let found = mode(server).for_writers(mode(own), is_allowed);
            assert_eq!(found, mode(expected), "{server}, {own}, {is_allowed}");
        }
    }

    #[test]
    fn flags_of_the_server_only_narrow_what_is_merged_unasked() {
        let mode = |text: &str| text.parse::<ApprovalMode>().unwrap();
        for (server, own, is_allowed, expected) in [
            ("inbox", "inbox", true, MergeApproval::Unasked),
            ("auto-below 1", "auto-below 1", true, MergeApproval::Unasked),
            ("auto-below 9", "inbox", false, MergeApproval::Asked),
            ("inbox", "auto-below 1", true, MergeApproval::Asked),
            ("deny", "inbox", true, MergeApproval::Denied),
            ("auto-below 9", "deny", true, MergeApproval::Denied),
        ] {
            let found = mode(server).for_merges(mode(own), is_allowed);
            assert_eq!(found, expected, "{server}, {own}, {is_allowed}");
        }
    }

    #[test]
    fn invalid_modes_are_rejected() {
        for text in [
            "",
            "yes",
            "auto",
            "auto-below",
            "auto-below 0",
            "auto-below -1",
            "auto-below inf",
            "auto-below nan",
            "auto-below 1 2",
            "auto-below 1e300",
            "Deny",
        ] {
            assert!(text.parse::<ApprovalMode>().is_err(), "{text}");
        }
    }
}
