//! Servers of a test's own on the loopback network.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Has each connection served by a thread of its own for as long as the process runs; returns the
/// address.
pub fn serve(each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let (address, each) = (listener.local_addr().expect("an address"), Arc::new(each));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, each) = (stream.expect("a connection"), Arc::clone(&each));
            thread::spawn(move || each(stream));
        }
    });
    address
}
