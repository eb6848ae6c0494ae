//! Sums up the errors of a failed delegation for its caller: retry, or intervene manually.

use adjutant_formats::contract::ReturnError;

/// Returns one sentence that sums up the errors of a return that did not complete.
///
/// The first unrecoverable error is named, even if recoverable ones come before it.
#[must_use]
pub fn handle_error_return(errors: &[ReturnError]) -> String {
    let Some(first) = errors.first() else {
        return "Task failed without saying why. Look at its transcript before trying again."
            .to_owned();
    };
    errors.iter().find(|error| !error.recoverable).map_or_else(
        || format!("Task failed but is recoverable. {}", first.recommendation),
        |fatal| format!("Task failed. Manual intervention required: {}", fatal.message),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::ErrorCode;
    use adjutant_formats::contract::ErrorType;

    fn error(message: &str, recoverable: bool, recommendation: &str) -> ReturnError {
        ReturnError {
            kind: ErrorType::Execution.into(),
            message: message.to_owned(),
            code: ErrorCode::BuildError.into(),
            recoverable,
            recommendation: recommendation.to_owned(),
        }
    }

    #[test]
    fn requirement_38_the_summary_says_whether_an_error_is_recoverable() {
        let soft = || error("3 type errors", true, "Fix type errors and retry");
        let hard = |message| error(message, false, "Ask the owner");
        for (errors, expected) in [
            (vec![soft()], "Task failed but is recoverable. Fix type errors and retry"),
            (vec![soft(), soft()], "Task failed but is recoverable. Fix type errors and retry"),
            (vec![hard("No access")], "Task failed. Manual intervention required: No access"),
            // D23: the first error is not the one that counts, and there may be none.
            (
                vec![soft(), hard("No access"), hard("No disk")],
                "Task failed. Manual intervention required: No access",
            ),
            (vec![], "Task failed without saying why. Look at its transcript before trying again."),
        ] {
            assert_eq!(handle_error_return(&errors), expected);
        }
    }
}
