//! Invalid scripts: the errors and their positions.

use std::error::Error;
use std::fs;

use adjutant_model::ScriptedModel;
use proptest::prelude::*;

fn complaint(toml: &str) -> String {
    ScriptedModel::from_toml(toml).unwrap_err().to_string()
}

/// Returns the complaints about several scripts, one line each.
fn complaints(scripts: &[&str]) -> String {
    scripts.iter().map(|toml| complaint(toml)).collect::<Vec<_>>().join("\n")
}

#[test]
fn invalid_toml_is_reported_with_its_position() {
    insta::assert_snapshot!(complaints(&[
        "[[turn]\ntext = 'x'",
        "[[turn]]\ntext = ",
        "[[turn]]\ntext = 'x'\ntext = 'y'",
        "window = 99999999999999999999\n",
    ]), @r"
    script:1:8: unclosed array table, expected `]`
    script:2:8: string values must be quoted, expected literal string
    script:3:1: duplicate key
    script:1:10: integer number overflowed
    ");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    insta::assert_snapshot!(complaints(&[
        "windw = 8000",
        "[[turn]]\ntext = 'x'\n  lable = 'y'",
        "[[turn]]\n[[turn.call]]\ntool = 'Read'\narg = {}",
        "[[turn]]\ntext = 'x'\nusage = { inptu = 1 }",
        "price = { input = 1, output = 1, cached = 1 }",
        "[[turn]]\nerror = 'rate_limit'",
        "[[turn]]\ntext = 'x'\nstop = 'zzz'",
    ]), @r"
    script:1:1: unknown key `windw` in a script, did you mean `window`? (allowed: window, max_output, price, delay_ms, turn)
    script:3:3: unknown key `lable` in a turn, did you mean `label`? (allowed: agent, label, turn, last, times, text, text_bytes, delay_ms, chunks, chunk_delay_ms, call, stop, usage, error, message, retry_after_ms, never_began, panic)
    script:4:1: unknown key `arg` in a call, did you mean `args`? (allowed: tool, args, raw_args, id, times)
    script:3:11: unknown key `inptu` in `usage`, did you mean `input`? (allowed: input, output, cache_read, cache_write)
    script:1:34: unknown key `cached` in `price` (allowed: input, output, cache_read, cache_write)
    script:2:9: `error` must be one of context_exhausted, rate_limited, overloaded, authentication, out_of_credit, bad_request, refused, network, truncated, idle, not `rate_limit`, did you mean `rate_limited`?
    script:3:8: `stop` must be one of end_turn, tool_use, max_output, refused, not `zzz`
    ");
}

#[test]
fn wrong_types_and_ranges_say_what_is_allowed() {
    insta::assert_snapshot!(complaints(&[
        "",
        "turn = []",
        "turn = 3",
        "turn = ['x']",
        "[turn]\ntext = 'x'",
        "window = 0\n[[turn]]\ntext = ''",
        "price = { input = -1, output = 1 }\n[[turn]]\ntext = ''",
        "price = { input = 1 }\n[[turn]]\ntext = ''",
        "[[turn]]\ntext = 3",
        "[[turn]]\ntext = 'x'\nturn = 0",
        "[[turn]]\ntext = 'x'\ntimes = 'always'",
        "[[turn]]\ntext = 'x'\ntimes = 0",
        "[[turn]]\ntext = 'x'\ndelay_ms = -5",
        "[[turn]]\ntext_bytes = 1000000000000",
        "[[turn]]\npanic = 'yes'",
        "[[turn]]\ntext = 'x'\nusage = 'some'",
        "[[turn]]\n[[turn.call]]\nargs = {}",
        "[[turn]]\n[turn.call]\ntool = 'Read'",
    ]), @r#"
    script:1:1: the script has no turns: add a [[turn]] with a `text`
    script:1:1: the script has no turns: add a [[turn]] with a `text`
    script:1:8: `turn` must be a list of tables, written [[turn]], not a number
    script:1:9: a turn must be a table, not a string
    script:1:1: `turn` must be a list of tables, written [[turn]], not an object
    script:1:10: `window` must be a whole number of at least 1, not 0
    script:1:19: `input` must be a number of at least 0, not -1
    script:1:9: `price` needs `output`, USD per million
    script:2:8: `text` must be a string, not a number
    script:3:8: `turn` must be a whole number from 1 to 4294967295, not 0
    script:3:9: `times` must be a whole number or "forever", not "always"
    script:3:9: `times` must be a whole number from 1 to 4294967295, not 0
    script:3:12: `delay_ms` must be a whole number from 0 to 86400000, not -5
    script:2:14: `text_bytes` must be a whole number from 1 to 67108864, not 1000000000000
    script:2:9: `panic` must be true or false, not a string
    script:3:9: `usage` must be a table or "none", not "some"
    script:2:1: a call needs its `tool`
    script:2:1: `call` must be a list of tables, written [[turn.call]], not an object
    "#);
}

#[test]
fn contradictory_keys_are_refused() {
    insta::assert_snapshot!(complaints(&[
        "[[turn]]\nlabel = 'x'",
        "[[turn]]\ntext = 'x'\nturn = 2\ntimes = 2",
        "[[turn]]\ntext = 'x'\nmessage = 'y'",
        "[[turn]]\nerror = 'network'\nstop = 'end_turn'",
        "[[turn]]\npanic = true\nerror = 'network'",
        "[[turn]]\n[[turn.call]]\ntool = 'Read'\nargs = {}\nraw_args = ''",
        "[[turn]]\ntext = 'x'\ntimes = 'forever'\n\n[[turn]]\nlabel = 'late'\ntext = 'y'",
    ]), @r#"
    script:1:1: this turn says nothing: give it text, text_bytes, call, error or panic (text = "" is an empty answer)
    script:4:9: `times` needs a place in the sequence: an entry with `turn` answers that turn, one with `last` whenever it matches
    script:3:11: `message` is only allowed beside `error`
    script:3:8: `stop` is not allowed beside `error`
    script:3:9: `error` is not allowed beside `panic`
    script:5:12: give `args` or `raw_args`, not both
    script:5:1: this turn is never used: an earlier turn repeats "forever"
    "#);
}

#[test]
fn a_turn_after_an_endless_turn_of_one_label_is_accepted() {
    let toml = "[[turn]]\nlabel = 'a'\ntext = 'x'\ntimes = 'forever'\n[[turn]]\ntext = 'y'";
    assert!(ScriptedModel::from_toml(toml).is_ok());
}

#[test]
fn placeholders_and_patterns_are_checked_at_load() {
    insta::assert_snapshot!(complaints(&[
        "[[turn]]\ntext = '''\nfine {{turn}}\nnot fine: {{promt}}\n'''",
        "[[turn]]\ntext = '{{result | linse}}'",
        "[[turn]]\ntext = '{{result 0}}'",
        "[[turn]]\ntext = '{{result.lines}}'",
        "[[turn]]\ntext = '{{result'",
        "[[turn]]\ntext = '{{}}'",
        "[[turn]]\ntext = '{{result | head x}}'",
        "[[turn]]\ntext = '{{result | count TODO}}'",
        "[[turn]]\ntext = '{{result | count /(/}}'",
        "[[turn]]\ntext = '{{result | count //}}'",
        "[[turn]]\ntext = '{{result | or none}}'",
        "[[turn]]\ntext = '{{result | match /open}}'",
        "[[turn]]\ntext = 'x'\nlast = '[a-'",
        "[[turn]]\ntext = 'x'\nlast = '((a{1000}){1000}){1000}'",
        "[[turn]]\n[[turn.call]]\ntool = 'Read'\nargs = { path = ['{{nothing}}'] }",
    ]), @r#"
    script:4:11: unknown placeholder `promt`, did you mean `prompt`? (one of prompt, last, result, agent, label, turn)
    script:2:9: unknown filter `linse`, did you mean `lines`? (one of lines, bytes, first_line, last_line, head, tail, count, match, matches, grep, or)
    script:2:9: results are counted from 1, found `result 0`
    script:2:9: expected `}}` or `|` in the placeholder, found `.`
    script:2:9: expected `}}` or `|` in the placeholder, found the end of the text
    script:2:9: expected one of prompt, last, result, agent, label, turn in the placeholder, found `}`
    script:2:9: `head` needs a number of lines, for example {{result | head 3}}
    script:2:9: `count` needs a pattern between slashes, for example {{result | count /fn /}}
    script:2:9: `(` is not a pattern: unclosed group
    script:2:9: a pattern has 1 to 1000 bytes, found 0
    script:2:9: `or` needs text in quotes, for example {{result | or "none"}}
    script:2:9: `match` needs a pattern between slashes, for example {{result | match /fn /}}
    script:3:8: `[a-` is not a pattern: unclosed character class
    script:3:8: `((a{1000}){1000}){1000}` is not a pattern: Compiled regex exceeds size limit of 10485760 bytes.
    script:4:19: unknown placeholder `nothing` (one of prompt, last, result, agent, label, turn)
    "#);
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let complaint = |json: &str| ScriptedModel::from_json(json).unwrap_err().to_string();
    let deep = format!("{{\"turn\": {}{}}}", "[".repeat(100), "]".repeat(100));
    let lines: Vec<_> = [
        "{\"turn\": [",
        "{\"turn\": [{\"text\": \"x\",\n  \"lable\": \"y\"}]}",
        "{\"turn\": [{\"text\": \"x\",\n  \"text\": \"y\"}]}",
        "{\"turn\": [{\"text\":\n\"{{nope}}\"}]}",
        "{\"turn\": [{\"text\": null}]}",
        "{\"turn\": [{\"text\":\n\"\\ud800\"}]}",
        "[]",
        &deep,
    ]
    .iter()
    .map(|json| complaint(json))
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    script:1:10: EOF while parsing a list
    script:2:3: unknown key `lable` in a turn, did you mean `label`? (allowed: agent, label, turn, last, times, text, text_bytes, delay_ms, chunks, chunk_delay_ms, call, stop, usage, error, message, retry_after_ms, never_began, panic)
    script:2:3: `text` is given twice
    script:2:2: unknown placeholder `nope` (one of prompt, last, result, agent, label, turn)
    script:1:20: `text` must be a string, not null
    script:2:1: `text` must be a string, not a string with broken escapes
    script:1:1: a script must be a table, not an array
    script:1:11: a turn must be a table, not an array
    ");
}

#[test]
fn an_invalid_script_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("latin1.toml"), b"[[turn]]\ntext = '\xe4'").unwrap();
    fs::write(path("script.yaml"), "").unwrap();
    fs::write(path("wrong.json"), "{}").unwrap();
    fs::create_dir(path("folder.toml")).unwrap();
    fs::File::create(path("huge.toml")).unwrap().set_len((16 << 20) + 1).unwrap();
    let root = folder.path().display().to_string();
    let names =
        ["missing.toml", "latin1.toml", "script.yaml", "wrong.json", "folder.toml", "huge.toml"];
    let lines: Vec<_> = names
        .iter()
        .map(|name| ScriptedModel::load(path(name)).unwrap_err())
        .map(|error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
        .map(|line| line.replace(&root, "$WORK"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    cannot read the script $WORK/missing.toml: No such file or directory (os error 2)
    $WORK/latin1.toml:2:9: this byte is not UTF-8
    the script $WORK/script.yaml must be named .toml or .json
    $WORK/wrong.json:1:1: the script has no turns: add a [[turn]] with a `text`
    the script $WORK/folder.toml is not a regular file
    the script $WORK/huge.toml is larger than 16777216 bytes
    ");
}

const TOML: &str = include_str!("../../../../examples/scripts/faults.toml");
const JSON: &str = r#"{"turn": [{"last": "\\d+", "text": "é {{result | count /a|b/}}",
    "call": [{"tool": "Read", "args": {"deep": [1, {"x": "{{prompt}}"}]}}]}]}"#;

proptest! {
    /// Loading a damaged script returns a script or an error and does not panic.
    #[test]
    fn a_damaged_script_never_panics(at in 0..2500_usize, cut in 0..40_usize, put in "[\\PC\n]{0,6}") {
        for text in [TOML, JSON] {
            let chars: Vec<char> = text.chars().collect();
            let start = at % chars.len();
            let end = (start + cut).min(chars.len());
            let damaged: String = chars[..start].iter().chain(put.chars().collect::<Vec<_>>().iter())
                .chain(&chars[end..]).collect();
            for result in [ScriptedModel::from_toml(&damaged), ScriptedModel::from_json(&damaged)] {
                if let Err(error) = result {
                    prop_assert!(error.to_string().starts_with("script:"), "{}", error);
                }
            }
        }
    }
}
