//! TLS to the database: who vouches for its certificate.

use crate::options::OpenError;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Encrypts, and checks the certificate and the name in it: by these authorities, or those of the operating system.
pub(crate) fn connector(authorities: Option<&[u8]>) -> Result<MakeRustlsConnect, OpenError> {
    let refuse = |reason: String| OpenError::Authorities(reason);
    let certificates: Vec<CertificateDer<'static>> = match authorities {
        Some(pem) => {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            found.map_err(|error| refuse(error.to_string()))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(refuse("there is none".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
