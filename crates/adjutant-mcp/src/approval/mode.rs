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
