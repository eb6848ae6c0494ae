//! What a person chose at the question about a call, read from the line they typed.

use adjutant_core::Usd;

/// A choice at the question about a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PromptChoice {
    /// Start the call.
    Yes,
    /// Start nothing; also an empty line.
    No,
    /// Show the question in full.
    ShowAll,
    /// Edit the tasks.
    Edit,
    /// Start the call, and further calls up to an amount that was not typed yet.
    AskAmount,
    /// Start the call, and further calls up to this amount.
    UpTo(Usd),
    /// Explain the choices.
    Help,
    /// Anything else.
    Unknown,
}

impl PromptChoice {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim().to_lowercase();
        match line.as_str() {
            "y" | "yes" => return Self::Yes,
            "" | "n" | "no" => return Self::No,
            "s" | "show" | "show all" => return Self::ShowAll,
            "e" | "edit" => return Self::Edit,
            "u" | "up" | "up to" | "yes up to" => return Self::AskAmount,
            "?" | "h" | "help" => return Self::Help,
            _ => {}
        }
        let amount = ["yes up to ", "y up to ", "up to ", "up ", "u "]
            .into_iter()
            .find_map(|start| line.strip_prefix(start));
        amount.and_then(parse_amount).map_or(Self::Unknown, Self::UpTo)
    }
}

/// Reads an amount of dollars above zero, such as `2`, `2.50` or `$2.50`.
pub(super) fn parse_amount(text: &str) -> Option<Usd> {
    let digits = text.trim().trim_start_matches('$').trim_end_matches("usd").trim();
    // Only digits and a point: `parse` would also read `inf` and `1e9`.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let dollars: f64 = digits.parse().ok().filter(|_| is_plain)?;
    Usd::from_dollars(dollars).filter(|usd| *usd > Usd::ZERO)
}

/// Returns the prompt. It fits 50 columns with some space to type.
pub(super) const fn prompt(can_edit: bool) -> &'static str {
    if can_edit {
        "Start? [y]es [N]o [s]how [e]dit [u]p to [?] "
    } else {
        "Start? [y]es [N]o [s]how [u]p to [?] "
    }
}

/// Returns the choices on one line, for input that was not understood.
pub(super) const fn one_line_help(can_edit: bool) -> &'static str {
    if can_edit {
        "y yes  n no  s show all  e edit  u up to  ? help\n"
    } else {
        "y yes  n no  s show all  u up to  ? help\n"
    }
}

/// Returns the explanation of the choices.
pub(super) fn help(can_edit: bool) -> String {
    let edit = if can_edit { "e  edit the tasks in $EDITOR, then ask again\n" } else { "" };
    format!(
        "y  start it\n\
         n  start nothing; so does Enter\n\
         s  show prompts, files and rights in full\n\
         {edit}u  start it; later calls of this run start\n   \
            without asking until their worst cases\n   \
            add up to an amount: u 2.00\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_a_choice() {
        let up_to = |dollars| PromptChoice::UpTo(Usd::from_dollars(dollars).unwrap());
        for (line, choice) in [
            ("y\n", PromptChoice::Yes),
            ("YES", PromptChoice::Yes),
            ("\n", PromptChoice::No),
            (" No ", PromptChoice::No),
            ("s", PromptChoice::ShowAll),
            ("e", PromptChoice::Edit),
            ("u", PromptChoice::AskAmount),
            ("?", PromptChoice::Help),
            ("u 2.50", up_to(2.5)),
            ("yes up to $2", up_to(2.0)),
            ("up to 0.01", up_to(0.01)),
            ("u 0", PromptChoice::Unknown),
            ("u -1", PromptChoice::Unknown),
            ("u inf", PromptChoice::Unknown),
            ("u 1e3", PromptChoice::Unknown),
            ("u nan", PromptChoice::Unknown),
            ("yess", PromptChoice::Unknown),
            ("y n", PromptChoice::Unknown),
            ("ja", PromptChoice::Unknown),
        ] {
            assert_eq!(PromptChoice::parse(line), choice, "{line:?}");
        }
    }

    #[test]
    fn prompt_and_help_fit_50_columns() {
        for can_edit in [true, false] {
            assert!(prompt(can_edit).len() <= 46);
            let help = help(can_edit);
            let lines = help.lines().chain(one_line_help(can_edit).lines());
            assert!(lines.clone().all(|line| line.len() <= 50), "{help}");
            assert!(help.lines().count() <= 7, "it fits eight rows with the prompt: {help}");
        }
    }
}
