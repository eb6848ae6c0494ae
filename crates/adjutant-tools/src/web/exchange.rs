//! Sends one request over a new connection and reads the response.

use std::future::poll_fn;
use std::pin::Pin;

use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::web::address::AddressScope;
use crate::web::body::{BodyReader, ResponseBody};
use crate::web::connect::dial;
use crate::web::target::RequestTarget;
use crate::web::{WebAccess, WebError};

/// The user agent, a fixed text that reveals nothing about the user.
const USER_AGENT: &str = concat!("adjutant/", env!("CARGO_PKG_VERSION"));

/// The maximum number of response headers; the default of the HTTP library, made explicit.
const MAX_HEADERS: usize = 100;

/// The headers and body of a request; the URL is separate, because redirects change it.
pub(crate) struct WebRequest {
    /// The `Accept` header.
    pub(crate) accept: &'static str,
    /// A JSON body for a POST; without one the request is a GET.
    pub(crate) json: Option<String>,
    /// The header with the key of a search engine.
    pub(crate) credential: Option<(HeaderName, HeaderValue)>,
}

impl WebRequest {
    /// Makes a request for a web page.
    pub(crate) fn page() -> Self {
        let accept = "text/html, text/markdown, text/plain, application/json, */*;q=0.5";
        Self { accept, json: None, credential: None }
    }

    /// Makes a request for JSON.
    pub(crate) fn json() -> Self {
        Self { accept: "application/json", ..Self::page() }
    }
}

/// A response whose headers have arrived.
pub(crate) struct WebResponse {
    response: Response<Incoming>,
    host: String,
}

/// Sends a request; returns when the response headers have arrived.
pub(crate) async fn exchange(
    web: &WebAccess,
    target: &RequestTarget,
    reach: AddressScope<'_>,
    ask: WebRequest,
) -> Result<WebResponse, WebError> {
    let host = target.name().into_owned();
    let request = request(target, ask).map_err(|error| http(&host, &error))?;
    let stream = dial(web, target, reach).await?;
    let caps = web.caps();
    let head = async {
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_header_size(caps.head_bytes)
            .handshake(TokioIo::new(stream))
            .await?;
        // The task ends with the runtime of this call at the latest.
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    match timeout(caps.idle_time, head).await {
        Ok(Ok(response)) => Ok(WebResponse { response, host }),
        Ok(Err(error)) => Err(http(&host, &error)),
        Err(_) => Err(WebError::Idle { host, time: caps.idle_time }),
    }
}

/// Builds the request. Only the headers set here are sent: no cookies, no referer, no language.
fn request(target: &RequestTarget, ask: WebRequest) -> Result<Request<String>, hyper::http::Error> {
    let mut builder = Request::builder()
        .uri(target.path())
        .header(header::HOST, target.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, ask.accept)
        .header(header::ACCEPT_ENCODING, "gzip")
        .header(header::CONNECTION, "close");
    if let Some((name, value)) = ask.credential {
        builder = builder.header(name, value);
    }
    match ask.json {
        None => builder.body(String::new()),
        Some(json) => {
            builder.method(Method::POST).header(header::CONTENT_TYPE, "application/json").body(json)
        }
    }
}

impl WebResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the target of a redirect; `None` if the response is not one.
    pub(crate) fn location(&self) -> Option<String> {
        let leads_on = matches!(self.status(), 301 | 302 | 303 | 307 | 308);
        let value = self.headers().get(header::LOCATION).filter(|_| leads_on)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// Returns a header if it is present and valid text.
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers().get(name).and_then(|value| value.to_str().ok())
    }

    fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Reads the body up to the size limit.
    pub(crate) async fn body(self, web: &WebAccess) -> Result<ResponseBody, WebError> {
        let caps = web.caps();
        let encodings = self.headers().get_all(header::CONTENT_ENCODING);
        let encodings: Vec<_> =
            encodings.iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let mut intake = BodyReader::new(Some(&encodings.join(", ")), caps.body_bytes)?;
        let Self { response, host } = self;
        let broken = |reason: String| WebError::Http { host: host.clone(), reason };
        let mut incoming = response.into_body();
        loop {
            let next = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context));
            let frame = timeout(caps.idle_time, next).await;
            let frame =
                frame.map_err(|_| WebError::Idle { host: host.clone(), time: caps.idle_time })?;
            let is_complete = frame.is_none();
            let wants_more = match frame {
                None => false,
                Some(frame) => match frame.map_err(|error| http(&host, &error))?.into_data() {
                    Ok(piece) => intake.take(&piece).map_err(|error| broken(error.to_string()))?,
                    // Trailers are ignored.
                    Err(_) => true,
                },
            };
            if !wants_more {
                return intake.finish(is_complete).map_err(|error| broken(error.to_string()));
            }
        }
    }
}

fn http(host: &str, error: &dyn std::error::Error) -> WebError {
    let reason = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    WebError::Http { host: host.to_owned(), reason }
}
