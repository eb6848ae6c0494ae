//! Naming the branch of a story's result after the story.

use std::collections::BTreeMap;

use adjutant_workspace::{ObjectId, is_branch_name};

use super::{KeptResult, KeptResults};

impl KeptResults {
    /// Names the branch of a result after its story: `adjutant/US-001`, or `adjutant/US-001-2` if that branch is at
    /// another commit, or `adjutant-US-001` if there is a branch `adjutant`.
    pub fn name_branch(&self, result: &mut KeptResult, story: &str) {
        // If git fails, the default name stays; creating the branch reports the error.
        let Ok(branches) = self.repository.branches() else { return };
        let usual = &result.branch;
        let wanted = [
            format!("adjutant/{story}"),
            format!("adjutant-{story}"),
            usual.clone(),
            usual.replacen('/', "-", 1),
        ];
        let mut wanted = wanted.iter().filter(|name| is_branch_name(name));
        if let Some(name) = wanted.find_map(|name| unused_name(&branches, name, &result.commit)) {
            result.branch = name;
        }
    }
}

/// Returns the first of `NAME`, `NAME-2`, … that is at this commit already, else the first that is free; `None`
/// if a branch has the name of a parent directory.
fn unused_name(branches: &BTreeMap<String, ObjectId>, name: &str, commit: &str) -> Option<String> {
    // Git stores branches as files, so `a/b` and `a` cannot both exist.
    let folders = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
    if folders.into_iter().any(|folder| branches.contains_key(folder)) {
        return None;
    }
    let numbered = |number: usize| match number {
        1 => name.to_owned(),
        number => format!("{name}-{number}"),
    };
    // With one more number than branches, one is free.
    let numbers = || (1..=branches.len() + 1).map(numbered);
    let is_there = |name: &String| branches.get(name).is_some_and(|tip| tip.as_str() == commit);
    let is_free = |name: &String| {
        let below = format!("{name}/");
        let next = branches.range(below.clone()..).next();
        !branches.contains_key(name) && next.is_none_or(|(next, _)| !next.starts_with(&below))
    };
    numbers().find(is_there).or_else(|| numbers().find(is_free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_is_named_after_its_story_if_that_is_free() {
        let (ours, other) = ("a".repeat(40), "b".repeat(40));
        // An exclamation mark means: at the result's commit.
        let cases = [
            ("", Some("adjutant/A")),
            ("adjutant/A!", Some("adjutant/A")),
            ("adjutant/A", Some("adjutant/A-2")),
            ("adjutant/A adjutant/A-2", Some("adjutant/A-3")),
            ("adjutant/A adjutant/A-3!", Some("adjutant/A-3")),
            ("adjutant/A-2!", Some("adjutant/A-2")),
            ("adjutant/A/x adjutant/B", Some("adjutant/A-2")),
            ("adjutant! main!", None),
        ];
        for (there, expected) in cases {
            let branch = |word: &str| {
                let at = if word.ends_with('!') { &ours } else { &other };
                (word.trim_end_matches('!').to_owned(), ObjectId::parse(at).unwrap())
            };
            let branches = there.split_whitespace().map(branch).collect();
            let found = unused_name(&branches, "adjutant/A", &ours);
            assert_eq!(found.as_deref(), expected, "{there:?}");
        }
    }
}
