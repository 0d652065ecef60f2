//! What encrypted connections trust: the system's certificates, or those of `SSL_CERT_FILE`.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::place::{PlaceError, place_error};

/// Returns how a client connects.
pub(super) fn client() -> Result<Arc<ClientConfig>, PlaceError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One that cannot be read trusts nobody.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(place_error!(
            "rediss://: no certificates to trust: install ca-certificates, or name a file of them \
             in SSL_CERT_FILE"
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| place_error!("rediss://: {error}; use redis:// if the network is safe"))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
