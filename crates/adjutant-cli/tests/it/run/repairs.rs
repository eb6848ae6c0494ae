//! Invalid returns: the errors that the agent gets, how often, and what is kept of its answers.

use crate::run::safety::{Play, research};

/// An answer that is not a return, long enough to be truncated everywhere.
fn original(nth: usize) -> String {
    format!("Answer {nth}: {} — the end of answer {nth}", "it was fine ✓ ".repeat(1_500))
}

#[test]
fn a_return_is_repaired_at_the_first_or_second_attempt_or_fails() {
    // The error of the last attempt is reported too, for a later resume.
    for (bad, outcome) in [(0, "completed"), (1, "completed"), (2, "completed"), (3, "failed")] {
        let mut play = Play::research().writes("researcher");
        for nth in 1..=bad {
            play = play.says("researcher", &original(nth));
        }
        let seen = research(play.completes("researcher").rig(), &[]);
        assert_eq!(seen.out.code, i32::from(outcome == "failed"), "{}", seen.out);
        let told = seen.of("told");
        assert_eq!(told.len(), bad, "{bad} bad answers: {told:?}");
        for nudge in told {
            assert_eq!(nudge["nudge"], "repair");
            let text = nudge["text"].as_str().unwrap();
            assert!(text.contains("Return is not valid JSON"), "{text}");
        }
        let result = seen.result();
        assert_eq!(result["outcome"], outcome, "{bad} bad answers: {result}");
        let session = result["session_id"].as_str().unwrap();
        let transcript = seen.rig.run(["transcript", session, "--json"]).json();
        let messages = transcript["messages"].as_array().unwrap();
        let said: Vec<&str> = messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .skip(1)
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        assert_eq!(said.len(), bad + usize::from(outcome == "completed"));
        for nth in 1..=bad {
            assert_eq!(said[nth - 1], original(nth), "an answer is not kept whole");
        }
        if outcome == "failed" {
            assert_eq!(result["reason"]["code"], "VALIDATION_FAILED");
            assert_eq!(seen.errors(), [("VALIDATION_FAILED".to_owned(), 1)]);
        } else {
            let report = result["report"].as_str().unwrap();
            assert!(report.contains("It is done. It is here."), "{report}");
            assert_eq!(seen.errors(), []);
        }
    }
}
