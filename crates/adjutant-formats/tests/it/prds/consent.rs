//! What the user must consent to, and when they are asked again.

use super::{child, done, prd};

const ASKING: &str = r#"{"merge": "apply", "stories": [
    {"id": "B", "title": "b", "verify": "make b", "suggestedModel": "opus"},
    {"id": "A", "title": "a", "delegationStrategy": ["x:1", {"description": "y", "verify": "make y"}]}
]}"#;

#[test]
fn each_consent_request_is_described_in_words() {
    let wishes = prd(ASKING).consent_requests();
    let said: Vec<String> = wishes.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "merge results: apply",
            "story B: use the model opus",
            "story A, planned child 2: run `make y`",
            "story B: run `make b`",
        ]
    );
    assert!(
        prd(r#"{"merge": false, "stories": [{"id": "A", "title": "a", "verify": " "}]}"#)
            .consent_requests()
            .is_empty()
    );
}

#[test]
fn the_consent_digest_covers_the_requests_and_nothing_else() {
    let digest = |text: &str| prd(text).consent_requests().digest();
    let asked = digest(ASKING);
    // Written down, for consent is kept on disk under it.
    assert_eq!(asked, "4e8c2f3bfcd874435b9991a9e393f0ff519018e27a4ca425dbc2205bba64fc7a");
    let mut outcome = done();
    outcome.children = vec![child("B-DEL-001", "B")];
    let after = prd(ASKING).edit("B", &outcome).unwrap();
    assert_eq!(digest(&after), asked);
    assert_eq!(
        digest(&ASKING.replace("\"title\": \"b\"", "\"title\": \"c\", \"notes\": \"n\"")),
        asked
    );
    for (from, to) in [
        ("apply", "branch"),
        ("opus", "sonnet"),
        ("make b", "make b; rm -rf /"),
        ("make y", "make z"),
        ("\"x:1\", ", ""),
        ("\"id\": \"B\"", "\"id\": \"C\""),
        ("\"suggestedModel\"", "\"verify2\""),
    ] {
        assert_ne!(digest(&ASKING.replace(from, to)), asked, "{from}");
    }
}

#[test]
fn consent_to_one_file_does_not_cover_another() {
    let wishes = prd(ASKING).consent_requests();
    let here = wishes.digest_at(b"/here/prd.json");
    assert_eq!(here, prd(ASKING).consent_requests().digest_at(b"/here/prd.json"));
    assert_ne!(here, wishes.digest_at(b"/there/prd.json"));
    assert_ne!(here, wishes.digest());
    let other = prd(&ASKING.replace("make b", "make c")).consent_requests();
    assert_ne!(here, other.digest_at(b"/here/prd.json"));
}
