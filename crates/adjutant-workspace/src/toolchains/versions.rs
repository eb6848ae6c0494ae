//! Versions as they occur in the names of directories and in small files.

use std::cmp::Ordering;

/// The longest version that is accepted; anything longer is not a version.
const MAX_VERSION_CHARS: usize = 60;

/// Returns the numbers at the start of a version: `[20, 1]` for `v20.1`, `20.1` and `go20.1-rc2`.
pub(super) fn numbers(text: &str) -> Vec<u64> {
    let digits = text.trim_start_matches(|it: char| it.is_ascii_alphabetic());
    let end = digits.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(digits.len());
    digits[..end].split('.').map_while(|part| part.parse().ok()).collect()
}

/// Returns the text as a version without a leading `v` or `go`, if it looks like one.
pub(super) fn version(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix('v').or_else(|| text.strip_prefix("go")).unwrap_or(text);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ".-+_".contains(it);
    let is_version = text.starts_with(|it: char| it.is_ascii_digit())
        && text.len() <= MAX_VERSION_CHARS
        && text.chars().all(is_plain);
    is_version.then(|| text.to_owned())
}

/// Returns the highest version among names. Final versions are above previews with the same numbers.
pub(super) fn highest<'names>(names: impl Iterator<Item = &'names str>) -> Option<&'names str> {
    names.filter(|name| !numbers(name).is_empty()).max_by(|left, right| compare(left, right))
}

/// Returns the installed version that `wanted` means: that very name, or the highest version that starts with its
/// numbers, as `20` means `v20.11.1`.
pub(super) fn matching<'names>(names: &'names [String], wanted: &str) -> Option<&'names str> {
    let same = |name: &&String| name.trim_start_matches('v') == wanted.trim_start_matches('v');
    if let Some(name) = names.iter().find(same) {
        return Some(name);
    }
    let prefix = numbers(wanted);
    // `3.12.1-debug` names one version only; `20` and `20.x` name a range.
    let is_range =
        wanted.trim_start_matches('v').chars().all(|it| it.is_ascii_digit() || ".x*".contains(it));
    if prefix.is_empty() || !is_range {
        return None;
    }
    highest(names.iter().map(String::as_str).filter(|name| numbers(name).starts_with(&prefix)))
}

/// Returns a version as `major.minor`.
pub(super) fn major_minor(version: &str) -> String {
    let parts: Vec<String> = numbers(version).iter().take(2).map(u64::to_string).collect();
    if parts.is_empty() { version.to_owned() } else { parts.join(".") }
}

fn compare(left: &str, right: &str) -> Ordering {
    let is_final = |text: &str| {
        text.trim_start_matches('v').chars().all(|it| it.is_ascii_digit() || it == '.')
    };
    numbers(left)
        .cmp(&numbers(right))
        .then_with(|| is_final(left).cmp(&is_final(right)))
        .then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_is_found_by_its_numbers() {
        for (names, wanted) in [
            (vec!["v9.1.0", "v20.1.0", "v18.0.0"], Some("v20.1.0")),
            (vec!["3.13.0rc1", "3.13.0", "3.9"], Some("3.13.0")),
            (vec!["system", "latest"], None),
        ] {
            assert_eq!(highest(names.iter().copied()), wanted, "{names:?}");
        }
    }

    #[test]
    fn a_short_version_means_the_highest_that_starts_with_it() {
        let names = ["v18.2.0", "v20.1.0", "v20.11.1", "v2.0.0"].map(str::to_owned);
        for (wanted, meant) in [
            ("20", Some("v20.11.1")),
            ("v20.1", Some("v20.1.0")),
            ("18.2.0", Some("v18.2.0")),
            ("2", Some("v2.0.0")),
            ("lts/iron", None),
            ("19", None),
            ("", None),
        ] {
            assert_eq!(matching(&names, wanted), meant, "{wanted}");
        }
    }

    #[test]
    fn only_plain_text_is_a_version() {
        assert_eq!(version("go1.22.1\n").as_deref(), Some("1.22.1"));
        assert_eq!(version("1.98.0-nightly").as_deref(), Some("1.98.0-nightly"));
        assert_eq!(version("\u{1b}[31m1"), None);
        assert_eq!(version(&"1".repeat(100)), None);
        assert_eq!(major_minor("1.95.0"), "1.95");
        assert_eq!(major_minor("12"), "12");
    }
}
