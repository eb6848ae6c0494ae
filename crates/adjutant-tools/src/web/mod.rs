//! The web tools: fetching a page by its URL, and querying a search engine.
//!
//! Owns the checks of URLs and addresses and the limits of responses. Whether an agent may use the network
//! was decided before; the tools exist only if a [`WebAccess`] was passed in.
//!
//! The HTTP library gets only an open socket, so it never resolves a name, uses a proxy, sends a cookie or
//! follows a redirect. The order of steps makes a request safe: the URL is parsed once (`target`), its host
//! is resolved once (`resolve`), every address must be public (`address`), one of them is connected to
//! (`connect`), one request is sent over that connection (`exchange`), and a redirect starts again at the
//! first step (`fetch`).
//!
//! Start at `fetch::fetch`. Invariant: nothing is sent to an unchecked address, and responses are limited in
//! size.

mod access;
mod address;
mod block_on;
mod body;
mod caps;
mod connect;
mod endpoint;
mod error;
mod exchange;
pub(crate) mod fetch;
mod markdown;
mod page;
mod resolve;
pub(crate) mod search;
mod target;

pub use access::WebAccess;
pub use caps::WebCaps;
pub use endpoint::SearchEndpoint;
pub use error::WebError;
pub use resolve::{Resolver, SystemResolver};
