//! TLS to the database: how its certificate is checked.

use crate::address::TlsMode;
use crate::options::OpenError;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Encrypts, and checks the certificate as the mode says: by these authorities, or those of the operating system.
pub(crate) fn connector(
    mode: TlsMode,
    authorities: Option<&[u8]>,
) -> Result<MakeRustlsConnect, OpenError> {
    let refuse = |reason: String| OpenError::Authorities(reason);
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?;
    let checks_certificate = matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull);
    let chain = if checks_certificate {
        let roots = Arc::new(roots(authorities)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        Some(verifier.build().map_err(|error| refuse(error.to_string()))?)
    } else {
        None
    };
    let verifier: Arc<dyn ServerCertVerifier> = match chain {
        Some(chain) if mode == TlsMode::VerifyFull => chain,
        chain => Arc::new(Lenient { chain, provider }),
    };
    let config =
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, OpenError> {
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
    Ok(roots)
}

/// Does not check the name in a certificate: `verify-ca`. Without authorities nothing is checked, not even whether it can be
/// read: `prefer`. What databases make for themselves is often not of version 3, which is all that can be read here; Citus
/// does so on every node.
#[derive(Debug)]
struct Lenient {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        // The chain is verified before the name.
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.chain.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.chain.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
