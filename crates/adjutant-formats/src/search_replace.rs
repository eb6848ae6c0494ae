//! Blocks of text to search for and to put in its place, as `<<<<<<< SEARCH`, `=======` and `>>>>>>> REPLACE`.

/// One block: the text to find and the text that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchReplaceBlock {
    /// The text to find.
    pub search: String,
    /// What stands there instead.
    pub replace: String,
}

/// Reads all blocks of a text. Lines outside of blocks are ignored.
///
/// # Errors
///
/// If there is no block, or one is not closed.
pub fn parse(text: &str) -> Result<Vec<SearchReplaceBlock>, String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !is_mark(line, &['<', '-'], "SEARCH") {
            continue;
        }
        let mut search = until(&mut lines, |line| is_mark(line, &['='], ""))?;
        // Some products put a line number first: `:start_line:12`, then a line of dashes.
        if search.first().is_some_and(|line| line.starts_with(":start_line:"))
            && let Some(at) = search.iter().position(|line| is_mark(line, &['-'], ""))
        {
            search.drain(..=at);
        }
        let replace = until(&mut lines, |line| is_mark(line, &['>', '+'], "REPLACE"))?;
        blocks.push(SearchReplaceBlock { search: joined(&search), replace: joined(&replace) });
    }
    if blocks.is_empty() {
        return Err("there is no block of `<<<<<<< SEARCH`, `=======` and `>>>>>>> REPLACE` lines"
            .to_owned());
    }
    Ok(blocks)
}

fn until<'text>(
    lines: &mut std::str::Lines<'text>,
    is_end: impl Fn(&str) -> bool,
) -> Result<Vec<&'text str>, String> {
    let mut taken = Vec::new();
    for line in lines.by_ref() {
        if is_end(line) {
            return Ok(taken);
        }
        taken.push(line);
    }
    Err("a block is not closed; each needs `=======` and `>>>>>>> REPLACE`".to_owned())
}

/// Says whether a line is five or more of one of these signs, followed by `word`.
fn is_mark(line: &str, signs: &[char], word: &str) -> bool {
    let line = line.trim_end();
    signs.iter().any(|sign| {
        let rest = line.trim_start_matches(*sign);
        line.len() - rest.len() >= 5 && rest.trim() == word
    })
}

fn joined(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_in_the_forms_of_several_products() {
        let block = |search: &str, replace: &str| SearchReplaceBlock {
            search: search.to_owned(),
            replace: replace.to_owned(),
        };
        for (text, blocks) in [
            ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", vec![block("a\n", "b\n")]),
            ("------- SEARCH\na\n=======\n+++++++ REPLACE", vec![block("a\n", "")]),
            (
                "<<<<<<< SEARCH\n:start_line:3\n-------\na\n=======\nb\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\nc\n=======\nd\n>>>>>>> REPLACE",
                vec![block("a\n", "b\n"), block("c\n", "d\n")],
            ),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(&blocks[..]), "{text}");
        }
        assert!(parse("a").unwrap_err().contains("no block"));
        assert!(parse("<<<<<<< SEARCH\na\n=======\nb\n").unwrap_err().contains("not closed"));
    }
}
