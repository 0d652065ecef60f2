//! The handshake, word by word: what is agreed on, what is refused, and what ends a connection.

mod client;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use client::*;
use zfold_disk::nbd::NbdOptions;

#[test]
fn a_golden_transcript_of_go() {
    let disk = disk(256);
    let mut served = Served::new(&disk, NbdOptions::default().with_name("golden"));
    let mut stream = served.connect();
    let says = |expected: &[u8]| {
        let mut said = vec![0; expected.len()];
        std::io::Read::read_exact(&mut &stream, &mut said).unwrap();
        assert_eq!(said, expected);
    };
    says(b"NBDMAGICIHAVEOPT\x00\x03");
    (&stream).write_all(b"\0\0\0\x03").unwrap();
    (&stream).write_all(b"IHAVEOPT\0\0\0\x08\0\0\0\0").unwrap();
    says(b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0");
    (&stream).write_all(b"IHAVEOPT\0\0\0\x07\0\0\0\x0e\0\0\0\x06golden\0\x01\0\x01").unwrap();
    let head = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03";
    says(&[&head[..], b"\0\0\0\x08\0\x01golden"].concat());
    says(&[&head[..], b"\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x04\0\0\0"].concat());
    says(&[&head[..], b"\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x0d\xed"].concat());
    says(b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0");
    // Four bytes written and read back.
    (&stream)
        .write_all(&[&request(WRITE, 0, 7, 4096, 4)[..], b"\x01\x02\x03\x04"].concat())
        .unwrap();
    says(b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07");
    (&stream).write_all(&request(READ, 0, 8, 4096, 4)).unwrap();
    says(
        b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x08\
        \0\0\0\x0c\0\0\0\0\0\0\x10\0\x01\x02\x03\x04",
    );
    (&stream).write_all(&request(DISCONNECT, 0, 9, 0, 0)).unwrap();
    assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap(), 0);
}

#[test]
fn export_name_begins_with_and_without_zeroes() {
    let disk = disk(16);
    let mut served = Served::one(&disk);
    for (client_flags, zeroes) in [(3u32, 0), (1, 124)] {
        let mut client = Client { stream: served.connect(), next_cookie: 1 };
        client.take::<18>();
        client.send(&client_flags.to_be_bytes());
        client.send_option(EXPORT_NAME, b"one");
        assert_eq!(u64::from_be_bytes(client.take()), 16 * PAGE);
        let flags = u16::from_be_bytes(client.take());
        assert_eq!(flags, 0xd6d, "no DF without structured replies");
        assert_eq!(client.take_vec(zeroes), vec![0; zeroes]);
        assert_eq!(client.simple(FLUSH, 0, 0, 0), 0);
    }
}

#[test]
fn info_tells_what_is_asked_for() {
    let disk = disk(4);
    let mut served = Served::one(&disk);
    let mut client = served.client();
    let replies = client.option(INFO, &info_request("", &[1, 2, 3, 99]));
    let kinds: Vec<_> = replies.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [3, 3, 3, 3, ACK]);
    assert_eq!(replies[0].1, b"\0\x01one");
    assert_eq!(replies[1].1, b"\0\x02the disk \"one\"");
    assert_eq!(replies[2].1, b"\0\x03\0\0\0\x01\0\0\x10\0\x04\0\0\0");
    let list = client.option(LIST, &[]);
    assert_eq!(list, [(2, b"\0\0\0\x03onethe disk \"one\"".to_vec()), (ACK, vec![])]);
    assert_eq!(client.option(LIST, &[1])[0].0, INVALID);
    assert_eq!(client.go("any").0, 4 * PAGE, "INFO leaves the handshake open");
}

#[test]
fn meta_contexts_are_listed_and_set() {
    let disk = disk(1);
    let mut served = Served::one(&disk);
    let mut client = served.client();
    let with_id = |id: u8| (4, [&[0, 0, 0, id], &b"base:allocation"[..]].concat());
    assert_eq!(client.option(SET_META_CONTEXT, &queries("", &["base:allocation"]))[0].0, INVALID);
    assert_eq!(client.option(STRUCTURED_REPLY, &[])[0].0, ACK);
    assert_eq!(client.option(STRUCTURED_REPLY, &[1])[0].0, INVALID);
    for all in [&[][..], &["base:"], &["qemu:x", "base:allocation"]] {
        let replies = client.option(LIST_META_CONTEXT, &queries("one", all));
        assert_eq!(replies, [with_id(0), (ACK, vec![])]);
    }
    for none in [&["qemu:dirty"][..], &["base:other"]] {
        for option in [LIST_META_CONTEXT, SET_META_CONTEXT] {
            assert_eq!(client.option(option, &queries("", none)), [(ACK, vec![])]);
        }
    }
    assert_eq!(client.option(SET_META_CONTEXT, &queries("", &["base:"])), [(ACK, vec![])]);
    let chosen = client.option(SET_META_CONTEXT, &queries("", &["base:allocation"]));
    assert_eq!(chosen, [with_id(1), (ACK, vec![])]);
    // A later choice of nothing takes the former one's place.
    assert_eq!(client.option(SET_META_CONTEXT, &queries("", &[])), [(ACK, vec![])]);
    client.go("");
    assert_eq!(client.simple(BLOCK_STATUS, 0, 0, 4096), EINVAL);
}

#[test]
fn malformed_options_are_refused_and_the_next_is_heard() {
    let disk = disk(1);
    let mut served = Served::one(&disk);
    let mut client = served.client();
    let huge_name = "n".repeat(5000);
    let malformed = [
        (GO, vec![]),
        (GO, vec![0, 0, 0, 9, b'x']),
        (GO, vec![0xff; 8]),
        (INFO, [&info_request("", &[])[..], &[0]].concat()),
        (INFO, info_request("", &[1, 2])[..7].to_vec()),
        (INFO, b"\0\0\0\x02\xff\xfe\0\0".to_vec()),
        (INFO, info_request(&huge_name, &[])),
        (LIST_META_CONTEXT, vec![0, 0]),
        (LIST_META_CONTEXT, queries("", &["base:"])[..12].to_vec()),
        (LIST_META_CONTEXT, b"\0\0\0\0\xff\xff\xff\xff".to_vec()),
        (SET_META_CONTEXT, [&queries("", &[])[..], &[7]].concat()),
        (STARTTLS, vec![1]),
    ];
    for (option, data) in malformed {
        assert_eq!(client.option(option, &data)[0].0, INVALID, "{option} {data:?}");
    }
    assert_eq!(client.option(STARTTLS, &[])[0].0, POLICY);
    for unknown in [0, 4, 12, u32::MAX] {
        assert_eq!(client.option(unknown, b"whatever")[0].0, UNSUPPORTED);
    }
    assert_eq!(client.go("").0, PAGE);
}

#[test]
fn what_is_no_handshake_is_hung_up_on() {
    let disk = disk(1);
    let mut served = Served::one(&disk);
    // Unknown client flags.
    let mut client = Client { stream: served.connect(), next_cookie: 1 };
    client.take::<18>();
    client.send(&[0, 0, 0, 7]);
    client.assert_closed();
    // No option, an option without end, a name too long to be one.
    let long_name = [&b"IHAVEOPT"[..], &[0, 0, 0, 1], &[0, 0, 0x20, 0], &[b'n'; 0x2000]].concat();
    let endless = b"IHAVEOPT\0\0\0\x03\0\x01\0\x01";
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], endless, &long_name] {
        let mut client = served.client();
        client.send(nonsense);
        client.assert_closed();
    }
    let mut client = served.client();
    assert_eq!(client.option(ABORT, b"ignored"), [(ACK, vec![])]);
    client.assert_closed();
    // A client that leaves in the middle of an option.
    let mut client = served.client();
    client.send(b"IHAVEOPT\0\0\0\x03\0\0\0\x05");
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.assert_closed();
    assert_eq!(served.server.stats().failed_handshakes_total, 5);
}

#[test]
fn a_handshake_has_one_time_for_all_of_it() {
    let disk = disk(1);
    let handshake_timeout = Duration::from_secs(2);
    let options = NbdOptions::default().with_handshake_timeout(handshake_timeout);
    let mut served = Served::new(&disk, options);
    let mut silent = Client { stream: served.connect(), next_cookie: 1 };
    silent.take::<18>();
    silent.assert_closed();
    let mut hesitant = served.client();
    hesitant.send(b"IHAVE");
    hesitant.assert_closed();
    // One that always has a little more to say: an option of 60000 bytes, drop by drop.
    let mut dripping = served.client();
    dripping.send(b"IHAVEOPT\0\0\0\x03\0\0\xea\x60");
    let heard = (0..60_000).take_while(|_| {
        std::thread::sleep(Duration::from_millis(1));
        dripping.stream.write_all(&[0]).is_ok()
    });
    assert!(heard.count() < 60_000);
    // Each option in good time, and always one more; 4096 of them would take 20 seconds.
    let mut talking = served.client();
    let heard = (0..4096).take_while(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let mut reply = [0; 20 + "this server does not know the option".len()];
        let said = talking.stream.write_all(b"IHAVEOPT\0\0\0\x63\0\0\0\0");
        said.is_ok() && talking.stream.read_exact(&mut reply).is_ok()
    });
    assert!((1..4000).contains(&heard.count()), "it ends by its time, not by their number");
    assert_eq!(served.server.stats().failed_handshakes_total, 4);
}
