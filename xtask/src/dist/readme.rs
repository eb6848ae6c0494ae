//! The README inside packages, where the files beside it are missing.

use std::path::Path;

use super::{Problem, Release};

/// Returns the README with links to the repository, at the tag of this version, in place of relative ones.
pub(super) fn packaged(release: &Release) -> Result<String, Problem> {
    let file = release.root.join("README.md");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("README.md: {error}"))?;
    with_absolute_links(&text, env!("CARGO_PKG_REPOSITORY"), &release.version, &release.root)
}

/// Replaces relative links of a Markdown text. A picture gets the address of its bytes, other files that of their page.
fn with_absolute_links(
    text: &str,
    repository: &str,
    version: &str,
    root: &Path,
) -> Result<String, Problem> {
    let mut parts = text.split("](");
    let mut absolute = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // `![text](` with a bracket inside the text is not used here.
        let is_picture = absolute.rsplit_once('[').is_some_and(|(before, _)| before.ends_with('!'));
        absolute.push_str("](");
        let (target, _) = part.split_once(')').ok_or("README.md: a link without an end")?;
        let is_relative = !target.contains("://") && !target.starts_with('#');
        if is_relative {
            let path = target.split('#').next().unwrap_or_default();
            if !root.join(path).exists() {
                return Err(format!("README.md: there is no {path}"));
            }
            let kind = if is_picture { "raw" } else { "blob" };
            absolute.push_str(&format!("{repository}/{kind}/v{version}/"));
        }
        absolute.push_str(part);
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::with_absolute_links;

    #[test]
    fn relative_links_lead_to_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let links = |text| with_absolute_links(text, "https://host/it", "1.2.3", root);
        assert_eq!(
            links(
                "![a run](src/main.rs) [code](src/main.rs#start), [there](#here) and [web](https://web/)\n"
            ),
            Ok("![a run](https://host/it/raw/v1.2.3/src/main.rs) \
                [code](https://host/it/blob/v1.2.3/src/main.rs#start), [there](#here) and [web](https://web/)\n"
                .to_owned())
        );
        assert_eq!(links("[gone](no.md)"), Err("README.md: there is no no.md".to_owned()));
    }
}
