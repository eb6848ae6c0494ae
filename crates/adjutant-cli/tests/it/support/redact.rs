//! Replaces ids and times in output with placeholders of the same width, so that snapshots are stable.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use regex::{Captures, Regex};

static IDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(run|sess)_(\d{10})_([a-z0-9]{6})\b").unwrap());
static ERRORS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\berr_\d{10}_[a-z0-9]{6}\b").unwrap());
static TIMES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d").unwrap());
static MILLIS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(:\d\d)\.\d{3}Z").unwrap());
static SECONDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b\d\.\ds\b").unwrap());
/// The age of a run in a list.
static AGES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(run_0{10}_[a-z]{6}  )[ \d]{2}[smhd]  ").unwrap());
static USAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\bin=~?[0-9,.kM]+ out=~?[0-9,.kM]+").unwrap());
static HASHES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\([0-9a-f]{11}…\)").unwrap());

/// Returns `text` with paths below `place`, ids, times and durations as in every other run.
///
/// Ids are named by their first appearance; a run and its root session keep their common ending.
pub(crate) fn redacted(text: &str, place: &Path) -> String {
    let place = place.display().to_string();
    let text = text.replace(&format!("{place}/work"), "$WORK").replace(&place, "$PLACE");
    let mut names = BTreeMap::new();
    let text = IDS.replace_all(&text, |id: &Captures<'_>| {
        let next = u8::try_from(names.len()).unwrap();
        let letter = *names.entry(id[3].to_owned()).or_insert(char::from(b'a' + next));
        format!("{}_0000000000_{}", &id[1], letter.to_string().repeat(6))
    });
    let text = AGES.replace_all(&text, "${1} 0s  ");
    let text = ERRORS.replace_all(&text, "err_0000000000_xxxxxx");
    let text = TIMES.replace_all(&text, "2000-01-01T00:00:00");
    let text = MILLIS.replace_all(&text, "$1.000Z");
    let text = HASHES.replace_all(&text, "(00000000000…)");
    SECONDS.replace_all(&text, "0.0s").into_owned()
}

/// Returns `text` without token counts, for runs in which some are estimates: these follow the length
/// of the built-in prompt, which may change.
pub(crate) fn without_usage(text: &str) -> String {
    USAGE.replace_all(text, "in=… out=…").into_owned()
}

#[test]
fn redaction_keeps_widths_and_distinguishes_ids() {
    let text = "run_1794734701_ycollx sess_1794734701_2v50kn sess_1794734701_ycollx 3.2s";
    let shown = redacted(text, Path::new("/nowhere"));
    assert_eq!(shown, "run_0000000000_aaaaaa sess_0000000000_bbbbbb sess_0000000000_aaaaaa 0.0s");
    assert_eq!(shown.len(), text.len());
}
