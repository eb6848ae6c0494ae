//! The two eras of the protocol: the version is agreed in a handshake, or named in every request.
//!
//! `rmcp` implements both. This file lists the supported versions and says which era a request indicates: one of them,
//! either, or none that is supported.

use rmcp::model::{ClientRequest, GetMeta, ProtocolVersion};

/// The supported versions, oldest first.
///
/// Older versions have batches and stricter rules for responses, and no client needs them.
pub(crate) const VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// The era that a request indicates, as long as the client has not chosen one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EraIndication {
    /// It starts the handshake.
    Handshake,
    /// It names a supported version and everything else that is required with it.
    Inline,
    /// It is allowed in both eras and chooses neither.
    Either,
    /// It names an unsupported version, or lacks something that is required with it.
    Unsupported,
    /// It does not name a version.
    Unspecified,
}

/// Returns the era that a request indicates.
pub(crate) fn request_era(request: &ClientRequest) -> EraIndication {
    if matches!(request, ClientRequest::InitializeRequest(_)) {
        return EraIndication::Handshake;
    }
    if matches!(request, ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)) {
        return EraIndication::Either;
    }
    let meta = request.get_meta();
    let Some(version) = meta.protocol_version() else { return EraIndication::Unspecified };
    if version.has_initialize() && VERSIONS.contains(&version) {
        // A version of the handshake era cannot be chosen in a request.
        return EraIndication::Unspecified;
    }
    let is_whole = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    if is_whole && VERSIONS.contains(&version) {
        EraIndication::Inline
    } else {
        EraIndication::Unsupported
    }
}
