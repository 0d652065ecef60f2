//! The certificates that encrypted connections trust: the system's certificates, or those of
//! `SSL_CERT_FILE`.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::place::{PlaceError, place_error};

/// Returns how a client connects to places of this `scheme`, as in `rediss://`.
///
/// # Errors
/// There is no authority to trust, and there `must` be one.
pub(crate) fn client(scheme: &str, must: bool) -> Result<Arc<ClientConfig>, PlaceError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One that cannot be read contains no authority.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() && must {
        return Err(place_error!(
            "{scheme}: no certificates to trust: install ca-certificates, or name a file of them \
             in SSL_CERT_FILE"
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| place_error!("{scheme}: no TLS: {error}"))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
