//! The two eras of the protocol: a version agreed on by a handshake, or named in every request.
//!
//! The library carries both. What is said here is which versions there are, and by which request a
//! client has chosen between the eras.

use rmcp::model::{ClientRequest, GetMeta, ProtocolVersion};

/// The versions that are spoken, the oldest first.
///
/// Older ones have batches and ask for less than is answered, and no client needs them.
pub(crate) const VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// What a request says about the era, where none was chosen yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// It begins the handshake.
    Handshake,
    /// It names a version that is spoken, and all that must be named with it.
    Inline,
    /// It may be asked in either era and chooses none.
    Either,
    /// It names a version, but not one that is spoken, or not all that must be named with it.
    Unsupported,
    /// It says nothing.
    Unspecified,
}

/// Returns what a request says about the era.
pub(crate) fn request_era(request: &ClientRequest) -> ProtocolEra {
    if matches!(request, ClientRequest::InitializeRequest(_)) {
        return ProtocolEra::Handshake;
    }
    if matches!(request, ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)) {
        return ProtocolEra::Either;
    }
    let meta = request.get_meta();
    let Some(version) = meta.protocol_version() else { return ProtocolEra::Unspecified };
    if version.has_initialize() && VERSIONS.contains(&version) {
        // One that is agreed on by a handshake cannot be named in its place.
        return ProtocolEra::Unspecified;
    }
    let is_whole = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    if is_whole && VERSIONS.contains(&version) {
        ProtocolEra::Inline
    } else {
        ProtocolEra::Unsupported
    }
}
