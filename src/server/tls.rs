//! Certificates, with rustls.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, bail};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

/// What the server shows of itself, and wants to see of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's chain, in PEM.
    pub certificate: PathBuf,
    /// The key of its first certificate, in PEM.
    pub key: PathBuf,
    /// Who may sign certificates of clients, in PEM.
    pub client_authorities: Option<PathBuf>,
    /// Whether clients show a certificate.
    pub clients: ClientCertificates,
    /// Read the files again when they change.
    pub refresh: bool,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    Ignored,
    /// If they have one, it is checked.
    Optional,
    /// Without one, there is no connection.
    Required,
}

/// Ready to accept connections.
pub struct Tls {
    files: TlsFiles,
    acceptor: TlsAcceptor,
    changed: Changed,
}

/// When the certificate, the key and the certificates of those who sign clients' were written.
type Changed = [Option<SystemTime>; 3];

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> anyhow::Result<Self> {
        let changed = changed(&files);
        let acceptor = acceptor(&files)?;
        Ok(Self { files, acceptor, changed })
    }

    /// What accepts the next connection; files that cannot be read leave the certificate as it was.
    pub(super) fn acceptor(&mut self) -> TlsAcceptor {
        if self.files.refresh {
            let changed = changed(&self.files);
            if changed != self.changed {
                self.changed = changed;
                match acceptor(&self.files) {
                    Ok(acceptor) => self.acceptor = acceptor,
                    Err(error) => tracing::warn!("keeping the old certificate: {error:#}"),
                }
            }
        }
        self.acceptor.clone()
    }
}

fn changed(files: &TlsFiles) -> Changed {
    let paths = [Some(&files.certificate), Some(&files.key), files.client_authorities.as_ref()];
    paths.map(|path| path?.metadata().and_then(|about| about.modified()).ok())
}

fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .with_context(|| format!("cannot read the key {}", files.key.display()))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match verifier(files, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .with_context(|| format!("{} does not fit {}", files.key.display(), files.certificate.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn verifier(files: &TlsFiles, provider: Arc<CryptoProvider>) -> anyhow::Result<Option<Arc<dyn ClientCertVerifier>>> {
    if files.clients == ClientCertificates::Ignored {
        return Ok(None);
    }
    let Some(path) = &files.client_authorities else {
        bail!("--ssl-cert-reqs wants certificates of clients, and --ssl-ca-certs does not say who may sign them");
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).with_context(|| format!("{} has a certificate that is no root", path.display()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match files.clients {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        ClientCertificates::Ignored | ClientCertificates::Required => builder,
    };
    Ok(Some(builder.build()?))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let certificates = read().with_context(|| format!("cannot read the certificates {}", path.display()))?;
    if certificates.is_empty() {
        bail!("{} has no certificates", path.display());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn each_file_that_is_written_anew_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = directory.path().join(name);
            File::create(&path).unwrap();
            path
        };
        let files = TlsFiles {
            certificate: path("certificate"),
            key: path("key"),
            client_authorities: Some(path("authorities")),
            clients: ClientCertificates::Required,
            refresh: true,
        };
        for name in ["certificate", "key", "authorities"] {
            let before = changed(&files);
            assert_eq!(changed(&files), before);
            let file = File::options().write(true).open(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            assert_ne!(changed(&files), before, "{name}");
        }
    }
}
