//! Servers that are not fit, or will not: each refusal names the remedy and no secret.

use zfold_far::EngineError;
use zfold_far::testing::conformance;
use zfold_testing::redis::{Server, ready};

use crate::{connect, connect_with, object, soon};

/// What documents tell to allow a user.
const RIGHTS: [&str; 7] = ["~zfold:*", "+set", "+wait", "+getrange", "+unlink", "+expire", "+info"];

fn refused(place: &str, variables: &[(&str, &str)], parts: &[&str]) {
    let error = connect_with(place, variables).expect_err("refused").to_string();
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
}

#[test]
fn a_user_needs_the_password_and_no_more_rights_than_documented() {
    zfold_testing::needs!(ready());
    let server = Server::start(&[]);
    let user = ["ACL", "SETUSER", "pages", "on", ">hunter2"];
    server.cli(&[&user[..], &RIGHTS[..]].concat());
    server.cli(&["ACL", "SETUSER", "weak", "on", ">hunter2", "+info"]);
    server.cli(&["ACL", "SETUSER", "default", "off"]);
    let place = format!("redis://pages@{}", server.address());
    let password = [("ZFOLD_REDIS_PASSWORD", "hunter2")];
    let engine = connect_with(&place, &password).expect("an engine");
    conformance(&*engine);
    assert!(!format!("{engine:?} {}", engine.name()).contains("hunter2"), "{engine:?}");
    let remedy = ["ZFOLD_REDIS_PASSWORD"];
    refused(&place, &[("ZFOLD_REDIS_PASSWORD", "hunter3")], &remedy);
    refused(&place, &[], &remedy);
    refused(&server.place(), &[], &remedy);
    let weak = connect_with(&format!("redis://weak@{}", server.address()), &password);
    let error = weak.expect("it may look").put(0, &object(0), soon()).expect_err("no right");
    assert!(matches!(&error, EngineError::Refused(why) if why.contains("+set")), "{error}");
}

#[test]
fn a_password_in_the_arguments_is_refused() {
    refused("redis://pages:hunter2@h", &[], &["ZFOLD_REDIS_PASSWORD", "command line"]);
}

#[test]
fn servers_that_are_not_fit_are_refused_with_the_remedy() {
    zfold_testing::needs!(ready());
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let address = server.address();
    let command = format!("-p {} CONFIG SET maxmemory-policy noeviction", server.port);
    refused(&format!("redis://{address}"), &[], &["allkeys-lru", &command]);
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    connect(&format!("redis://{address}"));
    refused(
        &format!("redis://{address}/?copies=2"),
        &[],
        &["copies=2 needs 1", "start more of them"],
    );
    let other = Server::start(&[]);
    refused(&format!("redis://{address},{}", other.address()), &[], &["are two masters"]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &server.port.to_string()]);
    refused(&replica.place(), &[], &["replica", "name its master too"]);
    let node = Server::start(&["--cluster-enabled", "yes"]);
    refused(&node.place(), &[], &["is a node of a cluster"]);
    refused("redis://h/?copies=9", &[], &["?copies=1 to 3"]);
    refused("redis://127.0.0.1:1", &[], &["redis at 127.0.0.1:1", "start it"]);
}

#[test]
fn a_full_server_refuses_and_keeps_what_it_has() {
    zfold_testing::needs!(ready());
    let server = Server::start(&["--maxmemory", "6mb"]);
    let engine = connect(&server.place());
    let mut kept = 0;
    let error = loop {
        match engine.put(kept, &object(kept), soon()) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 1000, "it is never full");
    };
    let names = |why: &str| why.contains("OOM") && why.contains("maxmemory");
    assert!(matches!(&error, EngineError::Refused(why) if names(why)), "{error}");
    assert_eq!(crate::missing(&*engine, 0..kept), 0);
}
