//! Encryption: where it is off, allowed and required, with and without clients' certificates.

mod client;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zfold_disk::nbd::{NbdOptions, Tls, tls_config};

type TlsClient = Client<StreamOwned<ClientConnection, UnixStream>>;

/// A directory with an authority, and a server's and a client's certificate of it.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn server(&self, client_ca: bool) -> Arc<rustls::ServerConfig> {
        let ca = self.path("ca.pem");
        let client_ca = client_ca.then_some(&*ca);
        tls_config(&self.path("server.pem"), &self.path("server.key"), client_ca).unwrap()
    }

    /// Starts TLS on a client that the server has agreed with to do so.
    fn encrypt(&self, client: Client<UnixStream>, with_certificate: bool) -> TlsClient {
        let read = |name| CertificateDer::from_pem_file(self.path(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read("ca.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if with_certificate {
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(vec![read("client.pem")], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let Client { stream, next_cookie } = client;
        Client { stream: StreamOwned::new(connection, stream), next_cookie }
    }
}

fn served(tls: Tls) -> Served {
    Served::new(&disk(1024), NbdOptions::default().with_tls(tls))
}

#[test]
fn an_encrypted_client_does_everything() {
    let certificates = Certificates::new();
    let mut served = served(Tls::Allowed(certificates.server(false)));
    let mut client = served.client();
    client.structured();
    assert_eq!(client.option(STARTTLS, &[]), [(ACK, vec![])]);
    let mut client = certificates.encrypt(client, false);
    // What was agreed on without encryption is forgotten.
    let forgotten = client.option(SET_META_CONTEXT, &queries("", &["base:allocation"]));
    assert_eq!(forgotten[0].0, INVALID);
    assert_eq!(client.option(STARTTLS, &[])[0].0, INVALID);
    client.structured();
    client.go("");
    for (offset, len) in [(0, 4096), (77, 100_000), (1 << 20, 2 << 20)] {
        let data = bytes(len, offset);
        assert_eq!(client.write(0, offset, &data), 0);
        assert_eq!(client.read(0, offset, len as u32), Ok(data));
    }
    // Many at once.
    let mut sent = Vec::new();
    for n in 0..200u64 {
        sent.extend(request(WRITE, 0, n, n * PAGE, 4096));
        sent.extend(bytes(4096, n));
    }
    client.send(&sent);
    for _ in 0..200 {
        assert!(matches!(client.reply(), Reply::Simple { error: 0, .. }));
    }
    client.request(DISCONNECT, 0, 0, 0);
    // A farewell, not just the end of the socket, which rustls would report as an error.
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(served.ready().write(0, 0, &[1]), 0, "the choice is the client's");
}

#[test]
fn required_tells_nothing_without_encryption() {
    let certificates = Certificates::new();
    let mut served = served(Tls::Required(certificates.server(false)));
    let mut client = served.client();
    let requests = [
        (LIST, vec![]),
        (INFO, info_request("", &[])),
        (GO, info_request("", &[])),
        (STRUCTURED_REPLY, vec![]),
        (LIST_META_CONTEXT, queries("", &[])),
    ];
    for (option, data) in requests {
        let replies = client.option(option, &data);
        assert_eq!((replies.len(), replies[0].0), (1, TLS_REQUIRED));
    }
    let mut by_name = served.client();
    by_name.send_option(EXPORT_NAME, b"");
    by_name.assert_closed();
    assert_eq!(client.option(STARTTLS, &[])[0].0, ACK);
    let mut client = certificates.encrypt(client, false);
    client.go("");
    assert_eq!(client.write(0, 0, &[1]), 0);
}

#[test]
fn a_client_authority_lets_only_its_clients_in() {
    let certificates = Certificates::new();
    let mut served = served(Tls::Required(certificates.server(true)));
    let mut stranger = served.client();
    assert_eq!(stranger.option(STARTTLS, &[])[0].0, ACK);
    let mut stranger = certificates.encrypt(stranger, false);
    // The refusal may be noticed at the first word or at the first answer.
    let heard = stranger.stream.write_all(b"IHAVEOPT").and_then(|()| {
        stranger.stream.flush()?;
        stranger.stream.read_exact(&mut [0; 8])
    });
    assert!(heard.is_err());
    let mut known = served.client();
    assert_eq!(known.option(STARTTLS, &[])[0].0, ACK);
    let mut known = certificates.encrypt(known, true);
    known.go("");
    assert_eq!(known.write(0, 0, &[1]), 0);
}

#[test]
fn words_put_before_the_encryption_are_not_the_clients() {
    let certificates = Certificates::new();
    let mut served = served(Tls::Allowed(certificates.server(false)));
    let mut client = served.client();
    // An option that travels with STARTTLS would be answered encrypted, if it were believed.
    client.send(b"IHAVEOPT\0\0\0\x05\0\0\0\0IHAVEOPT\0\0\0\x03\0\0\0\0");
    assert_eq!(client.option_reply(STARTTLS).0, ACK);
    let mut rest = Vec::new();
    // It is taken for ciphertext, and no TLS: an alert at most, then the end.
    client.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 64 && !rest.windows(4).any(|word| word == b"\0\0\0\x03"), "{rest:?}");
    assert_eq!(served.server.stats().failed_handshakes_total, 1);
}

#[test]
fn nonsense_in_an_encrypted_stream_ends_it() {
    let certificates = Certificates::new();
    let mut served = served(Tls::Allowed(certificates.server(false)));
    let mut client = served.client();
    assert_eq!(client.option(STARTTLS, &[])[0].0, ACK);
    let mut client = certificates.encrypt(client, false);
    client.go("");
    assert_eq!(client.write(0, 0, &[1]), 0);
    client.stream.sock.write_all(&[0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5]).unwrap();
    assert!(!matches!(client.stream.read(&mut [0]), Ok(1..)));
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let certificates = Certificates::new();
    let (chain, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let error = |chain: &Path, key: &Path, ca: Option<&Path>| {
        tls_config(chain, key, ca).expect_err("it cannot work").to_string()
    };
    let (missing, other) = (certificates.path("missing.pem"), certificates.path("client.key"));
    for (error, named, flaw) in [
        (error(&missing, &key, None), "missing.pem: ", "a PEM file is needed"),
        (error(&chain, &chain, None), "server.pem: ", "a PEM file is needed"),
        (error(&key, &key, None), "server.key: ", "no certificate"),
        (error(&chain, &key, Some(&*key)), "server.key: ", "no certificate"),
        (error(&chain, &other, None), "", "do not work"),
    ] {
        assert!(error.contains(named) && error.contains(flaw), "{error}");
    }
    // A valid key, of a size that few use.
    let odd = certificates.path("odd.key");
    fs::write(&odd, include_str!("client/rsa-2432.pem")).unwrap();
    let refused = error(&chain, &odd, None);
    assert!(
        refused.contains("odd.key") && refused.contains("2048, 3072 or 4096 bits"),
        "{refused}"
    );
}
