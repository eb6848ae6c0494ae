//! Verifying the signature of a server's calls with `ring`, which is in the program anyway.
//!
//! The SDK leaves the cryptography to the application. The providers that it offers would add forty crates, RSA among
//! them.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use ring::signature::{ED25519, UnparsedPublicKey};

/// Makes the SDK able to verify signatures.
pub(crate) fn install_verifier() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // Nothing else in the program installs one.
        let _ = PROVIDER.install_default();
    });
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    jwk_utils: JwkUtils::new_unimplemented(),
};

fn no_signer(_algorithm: &Algorithm, _key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if *algorithm != Algorithm::EdDSA {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Ed25519Verifier(key.as_bytes().to_vec())))
}

/// Verifies Ed25519 signatures with one public key.
struct Ed25519Verifier(Vec<u8>);

impl Verifier<Vec<u8>> for Ed25519Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(message, signature).map_err(|_unspecified| Error::new())
    }
}

impl JwtVerifier for Ed25519Verifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}
