//! Transport encryption with certificates (X.509).
//!
//! Pre-shared keys are not offered: no TLS library under a free licence that is written in Rust
//! has them.

use std::fmt::Display;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use thiserror::Error;
use zfold_store::files::open_to_read;
use zfold_store::pool::Lock;

use super::buffer::Buffer;
use super::socket::Socket;

/// Plaintext encrypted under one hold of the session's lock.
const ENCRYPT_BYTES: usize = 256 << 10;

/// Most bytes of a PEM file; those of a system's authorities are a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The configuration of sessions.
pub(super) type Config = Arc<ServerConfig>;

/// Whether connections are encrypted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// If the client asks for it.
    Allowed(Arc<ServerConfig>),
    /// Always: a client that does not request it learns nothing and gets no export.
    Required(Arc<ServerConfig>),
}

impl Tls {
    /// Returns the configuration, if there is any.
    pub(super) fn config(&self) -> Option<&Config> {
        match self {
            Self::Off => None,
            Self::Allowed(config) | Self::Required(config) => Some(config),
        }
    }

    /// Returns whether nothing is sent without encryption.
    pub(super) fn is_required(&self) -> bool {
        matches!(self, Self::Required(_))
    }
}

/// Why a TLS configuration was not made: the file, its flaw, and what is needed.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn file(path: &Path, flaw: impl Display) -> Self {
        Self(format!("{}: {flaw}; a PEM file is needed", path.display()))
    }
}

/// Returns a configuration with the server's certificate chain and key, both PEM files. With
/// `client_ca`, only clients with a certificate of that authority are let in.
///
/// # Errors
/// [`TlsError`].
pub fn tls_config(
    cert_chain_pem: &Path,
    key_pem: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(cert_chain_pem)?;
    let key = read(key_pem).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem));
    let key = key.map_err(|flaw| TlsError::file(key_pem, flaw))?;
    provider.key_provider.load_private_key(key.clone_key()).map_err(|_| {
        TlsError(format!(
            "{}: no usable key; RSA of 2048, 3072 or 4096 bits, ECDSA with P-256 or P-384, and \
             Ed25519 are supported",
            key_pem.display()
        ))
    })?;
    let unfit = |error| TlsError(format!("certificate and key do not work together: {error}"));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(unfit)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier
                .build()
                .map_err(|flaw| TlsError(format!("the client authority is unusable: {flaw}")))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    Ok(Arc::new(builder.with_single_cert(chain, key).map_err(unfit)?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |flaw| TlsError::file(path, flaw);
    let pem = read(path).map_err(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(file)?;
    if chain.is_empty() { Err(TlsError::file(path, "it holds no certificate")) } else { Ok(chain) }
}

/// Returns the bytes of a PEM file.
fn read(path: &Path) -> Result<Vec<u8>, pem::Error> {
    let mut bytes = Vec::new();
    let file = open_to_read(path).map_err(pem::Error::Io)?;
    match file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes) {
        Ok(read) if read as u64 > PEM_BYTES_MAX => {
            Err(pem::Error::Io(io::Error::other("it is longer than 1 MiB")))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(pem::Error::Io(error)),
    }
}

/// The encryption of one connection. Its lock is held to move bytes in memory only: one thread at
/// a time receives, one at a time sends, and both do so without it.
#[derive(Debug)]
pub(super) struct Session(Lock<ServerConnection>);

impl Session {
    /// Shakes hands over `socket`; `cipher` holds what was received already and keeps what is
    /// left over.
    pub(super) fn accept(
        config: &Config,
        socket: &Socket,
        cipher: &mut Buffer,
    ) -> io::Result<Self> {
        let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(ENCRYPT_BYTES));
        while connection.is_handshaking() {
            if connection.wants_write() {
                send_ciphertext(&mut connection, socket)?;
                continue;
            }
            if cipher.is_empty() && cipher.fill(|space| socket.receive(space))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let fed = feed(&mut connection, cipher);
            if fed.is_err() {
                // The alert tells the client why; that it arrives is not needed.
                let _ = send_ciphertext(&mut connection, socket);
            }
            fed?;
        }
        send_ciphertext(&mut connection, socket)?;
        Ok(Self(Lock::new(connection)))
    }

    /// Receives decrypted bytes, as [`Socket::receive`].
    pub(super) fn receive(
        &self,
        socket: &Socket,
        cipher: &mut Buffer,
        out: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            {
                let mut connection = self.0.lock();
                loop {
                    match connection.reader().read(out) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        // Without a farewell the peer has left as well: requests have lengths.
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                        read => return read,
                    }
                    if cipher.is_empty() {
                        break;
                    }
                    feed(&mut connection, cipher)?;
                }
            }
            if cipher.fill(|space| socket.receive(space))? == 0 {
                return Ok(0);
            }
        }
    }

    /// Encrypts and sends all of `slices`. One thread at a time.
    pub(super) fn send_all(&self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<()> {
        for mut plain in slices.iter().map(|slice| &slice[..]) {
            while !plain.is_empty() {
                let mut sealed = Vec::new();
                {
                    let mut connection = self.0.lock();
                    let taken = connection.writer().write(plain)?;
                    plain = &plain[taken..];
                    while connection.wants_write() {
                        connection.write_tls(&mut sealed)?;
                    }
                }
                socket.send_all(&mut [IoSlice::new(&sealed)])?;
            }
        }
        Ok(())
    }

    /// Says farewell.
    pub(super) fn close(&self, socket: &Socket) {
        let mut sealed = Vec::new();
        {
            let mut connection = self.0.lock();
            connection.send_close_notify();
            // Writing to memory does not fail.
            while connection.wants_write() && connection.write_tls(&mut sealed).is_ok() {}
        }
        let _ = socket.send_all(&mut [IoSlice::new(&sealed)]);
    }
}

fn feed(connection: &mut ServerConnection, cipher: &mut Buffer) -> io::Result<()> {
    let fed = connection.read_tls(&mut cipher.bytes())?;
    cipher.consume(fed);
    connection.process_new_packets().map_err(io::Error::other)?;
    Ok(())
}

fn send_ciphertext(connection: &mut ServerConnection, socket: &Socket) -> io::Result<()> {
    let mut sealed = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut sealed)?;
    }
    socket.send_all(&mut [IoSlice::new(&sealed)])
}
