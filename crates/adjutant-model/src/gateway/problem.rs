//! Why a request of an agent is refused before it reaches the provider.

/// Why a request is refused. The text is the reason that the agent is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestProblem {
    /// The body is not a JSON object.
    #[error("the request is not a JSON object")]
    NotJson,
    /// The request names no model.
    #[error("the request names no model")]
    NoModel,
    /// The body is too large.
    #[error("the request has {bytes} bytes, limit {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The model is forced to call a tool that the provider would run.
    #[error("{} is not available here", tool_words(.tool))]
    RequiredTool {
        /// The API's name of the tool.
        tool: String,
    },
    /// The request continues a conversation, or uses a prompt, that the provider has stored.
    #[error("`{field}` is not available here: a request must contain its whole conversation")]
    StoredConversation {
        /// The field that refers to it.
        field: String,
    },
    /// The answer would be generated after the connection has closed.
    #[error("background responses are not available here")]
    Background,
    /// The service tier, speed or region may have another price.
    #[error("{field} `{tier}` is not available here")]
    ServiceTier {
        /// The API's field.
        field: String,
        /// The requested tier.
        tier: String,
    },
    /// More than one answer is requested, each with its own output.
    #[error("several answers to one request are not available here: `{field}` must be 1")]
    SeveralAnswers {
        /// The field with the number of answers.
        field: String,
    },
    /// The provider would have to fetch a part of the content, or read it from its storage.
    #[error("remote content (`{field}`) is not available here: send the data itself")]
    RemoteContent {
        /// The field that refers to it.
        field: String,
    },
    /// The answer would be something other than text, with another price.
    #[error("output as {kind} is not available here")]
    OutputKind {
        /// The requested kind, for example `audio`.
        kind: String,
    },
}

/// Returns the name of a tool as words: `web_search_20250305` is `web search`, `googleSearch` is `google search`.
fn tool_words(tool: &str) -> String {
    let mut words = String::new();
    for letter in tool.chars().take(80) {
        match letter {
            '_' | '-' => words.push(' '),
            upper if upper.is_ascii_uppercase() => {
                if !words.is_empty() {
                    words.push(' ');
                }
                words.push(upper.to_ascii_lowercase());
            }
            letter if letter.is_control() => {}
            letter => words.push(letter),
        }
    }
    let version = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_digit());
    match words.rsplit_once(' ') {
        Some((name, last)) if version(last) => name.to_owned(),
        Some(_) | None => words,
    }
}
