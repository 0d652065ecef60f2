//! Who has a place at a server, and who gives way where there is none.

mod client;

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use client::*;
use rustix::net::{AddressFamily, SocketType};
use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer};

/// Places for handshakes alone, at the least.
const HANDSHAKES: usize = 8;

/// A server with places for `clients`, and time enough that none of it decides.
fn options(clients: usize) -> NbdOptions {
    let hour = Duration::from_secs(3600);
    NbdOptions::default()
        .with_max_connections(clients)
        .with_handshake_timeout(hour)
        .with_idle_after(hour)
}

/// A server on loopback.
struct Tcp {
    server: std::sync::Arc<NbdServer>,
    port: u16,
}

impl Tcp {
    /// Says so where there is no loopback network.
    fn serve(options: NbdOptions) -> Option<Self> {
        if !has_loopback() {
            return None;
        }
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".into())).unwrap();
        let uri = listener.uri(false);
        let port = uri.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap();
        let server = NbdServer::new(disk(16), options);
        server.serve(listener).unwrap();
        Some(Self { server, port })
    }

    /// Returns a client in the handshake, from 127.0.0.`from`.
    fn client(&self, from: u8) -> Client<TcpStream> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, from), 0)).unwrap();
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        rustix::net::connect(&socket, &server).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::greet(stream)
    }

    fn ready(&self, from: u8) -> Client<TcpStream> {
        let mut client = self.client(from);
        client.go("");
        client
    }
}

fn assert_heard<S: std::io::Read + std::io::Write>(client: &mut Client<S>) {
    assert_eq!(client.option(99, &[])[0].0, UNSUPPORTED);
}

#[test]
fn strangers_keep_nobody_out() {
    let mut served = Served::new(&disk(1), options(2));
    let mut one = served.ready();
    let mut strangers: Vec<_> = (0..HANDSHAKES).map(|_| served.client()).collect();
    let mut two = served.ready();
    // All places are taken; the next handshake takes that of the first.
    strangers.push(served.client());
    strangers[0].assert_closed();
    strangers[1..].iter_mut().for_each(assert_heard);
    assert_eq!((one.simple(FLUSH, 0, 0, 0), two.simple(FLUSH, 0, 0, 0)), (0, 0));
    assert_eq!(served.server.stats().refused_total, 0);
    drop((one, two, strangers));
    assert_eq!(served.finish().gave_way_total, 0);
}

#[test]
fn clients_beyond_the_limit_are_told_so_and_may_try_again() {
    let mut served = Served::new(&disk(1), options(2));
    let (mut first, second) = (served.ready(), served.ready());
    let mut third = served.client();
    let refused = third.option(GO, &info_request("", &[]));
    assert_eq!(refused, [(POLICY, b"all places are taken; try again later".to_vec())]);
    assert_eq!(third.option(INFO, &info_request("", &[])).len(), 3, "asking needs no place");
    let mut old = served.client();
    old.send_option(EXPORT_NAME, b"");
    old.assert_closed();
    assert_eq!(first.simple(FLUSH, 0, 0, 0), 0);
    assert_eq!(served.server.stats().refused_total, 2);
    drop(second);
    wait_until("two of four have left", || served.server.stats().connections <= 2);
    third.go("");
    assert_eq!(third.simple(FLUSH, 0, 0, 0), 0);
    drop((first, third));
    assert_eq!(served.finish().gave_way_total, 0);
}

#[test]
fn the_client_that_is_idle_longest_gives_way() {
    let Some(tcp) = Tcp::serve(options(3).with_idle_after(Duration::ZERO)) else { return };
    let mut clients = [tcp.ready(1), tcp.ready(1), tcp.ready(1)];
    for n in [1, 0, 2] {
        assert_eq!(clients[n].simple(FLUSH, 0, 0, 0), 0);
    }
    let mut newcomer = tcp.ready(1);
    clients[1].assert_closed();
    let [first, _, third] = &mut clients;
    for client in [first, third, &mut newcomer] {
        assert_eq!(client.simple(FLUSH, 0, 0, 0), 0);
    }
    let stats = tcp.server.stats();
    assert_eq!((stats.gave_way_total, stats.refused_total), (1, 0));
    assert!(tcp.server.shutdown(PATIENCE));
}

#[test]
fn clients_on_this_machine_never_give_way() {
    let options = options(2).with_idle_after(Duration::ZERO);
    let mut served = Served::new(&disk(1), options);
    let mut clients = [served.ready(), served.ready()];
    let mut newcomer = served.client();
    assert_eq!(newcomer.option(GO, &info_request("", &[]))[0].0, POLICY);
    for client in &mut clients {
        assert_eq!(client.simple(FLUSH, 0, 0, 0), 0);
    }
    drop((clients, newcomer));
    let stats = served.finish();
    assert_eq!((stats.gave_way_total, stats.refused_total), (0, 1));
}

#[test]
fn handshakes_of_the_address_that_has_most_give_way() {
    let Some(tcp) = Tcp::serve(options(2)) else { return };
    let mut lone = tcp.client(2);
    let mut many: Vec<_> = (0..HANDSHAKES + 1).map(|_| tcp.client(3)).collect();
    let mut newcomers: Vec<_> = (4..7).map(|from| tcp.client(from)).collect();
    many.drain(..3).for_each(|mut oldest| oldest.assert_closed());
    assert_heard(&mut lone);
    many.iter_mut().chain(&mut newcomers).for_each(assert_heard);
    assert!(tcp.server.shutdown(PATIENCE));
}

#[test]
fn an_address_with_many_clients_takes_no_place_of_one_with_few() {
    let Some(tcp) = Tcp::serve(options(3).with_idle_after(Duration::ZERO)) else { return };
    let mut lone = tcp.ready(2);
    let mut many = [tcp.ready(3), tcp.ready(3)];
    let mut another = tcp.ready(3);
    many[0].assert_closed();
    // From elsewhere the one that is idle longest gives way, whoever it is.
    assert_eq!(lone.simple(FLUSH, 0, 0, 0), 0);
    let mut newcomer = tcp.ready(4);
    many[1].assert_closed();
    for client in [&mut lone, &mut another, &mut newcomer] {
        assert_eq!(client.simple(FLUSH, 0, 0, 0), 0);
    }
    assert!(tcp.server.shutdown(PATIENCE));
}
