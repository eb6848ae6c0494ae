//! The web as an agent sees it: one page by its address, or a question to a search engine.
//!
//! Owns what may be asked, of whom, and how much of the answer is taken. Whether an agent may use
//! the network at all was judged before; the tools exist only where a [`WebAccess`] was handed in.
//!
//! The HTTP library below is given an open socket and nothing else: it never sees a name to
//! resolve, a proxy, a cookie or a redirect. So the order of one request is the whole argument:
//! the URL is read once (`target`), its name is resolved once (`resolve`), every address must be
//! public (`address`), one of exactly those is connected to (`connect`), one request is made over that
//! connection (`exchange`), and a redirect begins again at the first step (`fetch`).
//!
//! Start at `fetch::fetch`. Invariant: no byte leaves for an address that was not checked, and no
//! more than the caps is kept of what comes back.

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
