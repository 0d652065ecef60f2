//! Leases against a real server, with an hour that passes in seconds.

use std::thread;

use zfold_testing::s3::{BUCKET, S3, ready};
use zfold_testing::wait::soon;

use super::*;
use crate::place::{Place, Source};

/// How long a lease lasts here.
const SHORT: Duration = Duration::from_secs(10);

fn engine(server: &S3) -> S3Engine {
    let variables = server.variables();
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    let place = Place::parse(&format!("s3://{BUCKET}/cold"), Source::Arguments, variable);
    let Ok(Place::S3(place)) = place else { panic!("{place:?}") };
    let mut engine = S3Engine::connect(&place, soon()).expect("an engine");
    engine.lease = SHORT;
    engine
}

fn folder(engine: &S3Engine) -> String {
    format!("{}/", engine.run)
}

#[test]
fn what_a_killed_run_left_is_removed_and_nothing_else() {
    if !ready("what_a_killed_run_left_is_removed_and_nothing_else") {
        return;
    }
    let server = S3::start();
    let nobody = |digit: &str| format!("cold/zfold-{}/", digit.repeat(random::NAME_LEN));
    let (old, young) = (nobody("a"), nobody("b"));
    let killed = engine(&server);
    (0..3).for_each(|number| killed.put(number, b"sealed", soon()).expect("put"));
    server.put(&format!("{old}0000000000000007"), b"of a run without a lease");
    server.put("cold/zfold-notes", b"of somebody else");
    server.put("cold/zfold-old/notes", b"of somebody else");
    thread::sleep(SHORT + Duration::from_secs(2));

    // One that lives has its lease renewed, however old its objects are.
    let living = engine(&server);
    living.put(1, b"sealed", soon()).expect("put");
    server.put(&format!("{young}0000000000000007"), b"it may have a lease soon");
    let sweeper = engine(&server);
    sweeper.renew(soon()).expect("renewed");
    assert!(server.keys(&folder(&killed)).is_empty(), "with its lease");
    assert!(server.keys(&old).is_empty(), "nobody's");
    assert_eq!(server.keys(&folder(&living)).len(), 2);
    assert_eq!((server.keys(&young).len(), server.keys("cold/zfold-notes").len()), (1, 1));
    assert_eq!(server.keys("cold/zfold-old/").len(), 1);
    assert_eq!(server.keys(&folder(&sweeper)).len(), 1, "its own lease");

    living.delete(&[1], soon()).expect("deleted");
    living.close(soon()).expect("closed");
    assert!(server.keys(&folder(&living)).is_empty());
}
