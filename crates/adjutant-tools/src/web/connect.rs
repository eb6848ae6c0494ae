//! Connects to the host of a checked URL: resolves it once, checks every address, and connects to one of
//! them.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::web::address::AddressScope;
use crate::web::target::RequestTarget;
use crate::web::{WebAccess, WebError};

/// The maximum number of addresses tried per host; the rest of a long list would fail in the same way.
const TRIED: usize = 4;

/// A plain or TLS connection.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

/// Connects to `target` at an address that `reach` allows.
pub(crate) async fn dial(
    web: &WebAccess,
    target: &RequestTarget,
    reach: AddressScope<'_>,
) -> Result<Box<dyn Connection>, WebError> {
    let addresses = addresses(web, target).await?;
    // All addresses are checked, because a host with both a public and a private address is suspicious.
    for address in &addresses {
        if let Some(kind) = reach.refusal_reason(*address) {
            return Err(WebError::NotPublic { host: target.name().into_owned(), kind });
        }
    }
    let tcp = connect(web, target, &addresses).await?;
    if target.is_secure() { connect_tls(web, target, tcp).await } else { Ok(Box::new(tcp)) }
}

/// Returns the addresses of the host. Names are resolved only here.
async fn addresses(web: &WebAccess, target: &RequestTarget) -> Result<Vec<SocketAddr>, WebError> {
    let unresolved = || WebError::Unresolved(target.name().into_owned());
    let found: Vec<IpAddr> = match target.address() {
        Some(address) => vec![address],
        None => {
            let (resolver, name) = (web.resolver(), target.name().into_owned());
            let asked = tokio::task::spawn_blocking(move || resolver.resolve(&name));
            asked.await.map_err(|_| unresolved())?.map_err(|_| unresolved())?
        }
    };
    if found.is_empty() {
        return Err(unresolved());
    }
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, target.port())).collect())
}

async fn connect(
    web: &WebAccess,
    target: &RequestTarget,
    addresses: &[SocketAddr],
) -> Result<TcpStream, WebError> {
    let mut reason = String::new();
    for address in addresses.iter().take(TRIED) {
        match timeout(web.caps().connect_time, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = "it takes too long".to_owned(),
        }
    }
    Err(WebError::Connect { host: target.name().into_owned(), reason })
}

async fn connect_tls(
    web: &WebAccess,
    target: &RequestTarget,
    tcp: TcpStream,
) -> Result<Box<dyn Connection>, WebError> {
    let host = || target.name().into_owned();
    let failed = |reason: &dyn Display| WebError::Tls { host: host(), reason: reason.to_string() };
    let config = web.tls().map_err(|reason| failed(&reason))?;
    // The certificate is checked against the host of the URL, not against the address.
    let name = match target.address() {
        Some(address) => ServerName::IpAddress(address.into()),
        None => ServerName::try_from(host()).map_err(|error| failed(&error))?,
    };
    let time = web.caps().idle_time;
    let shaken = timeout(time, TlsConnector::from(config).connect(name, tcp)).await;
    let stream = shaken.map_err(|_| WebError::Idle { host: host(), time })?;
    Ok(Box::new(stream.map_err(|error| failed(&error))?))
}
