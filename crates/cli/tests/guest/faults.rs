//! Files of images that fail, by errors or a quota that is used up.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::common::assert_refused;
use crate::faulty::{FAULTS, Mounted};
use crate::server::{Server, memory};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_file_that_fails_costs_no_image() {
    let Some(on) = Mounted::new() else { return };
    let [memory_file, saved, out] = ["a.mem", "images", "out"].map(|name| on.path(name));
    memory(&memory_file, 500, 1);
    let image = format!("a={}", text(&memory_file));
    let server = Server::start(tempfile::tempdir().expect("a folder"), &["--image", &image], 1);
    server.done(&["guest", "save", text(&saved)]);
    let before = fs::read(&saved).expect("saved");
    let faults = &on.faults;
    for fault in FAULTS {
        let fails = |place: &std::sync::atomic::AtomicI32, line: &[&str], part: &str| {
            place.store(fault.raw_os_error(), Ordering::SeqCst);
            server.refused(line, &[part]);
            faults.end();
        };
        for place in [&faults.write, &faults.sync, &faults.rename] {
            fails(place, &["guest", "save", text(&saved)], "cannot save to");
            assert!(fs::read(&saved).expect("saved") == before, "{fault}: another file");
        }
        for place in [&faults.write, &faults.sync] {
            fails(place, &["guest", "export", "a", text(&out)], "cannot write");
        }
        fails(&faults.read, &["guest", "import", "b", text(&memory_file)], "cannot import");
        let part = on.path(&format!("images.part{}", server.stat()["server_pid"]));
        assert!(!part.exists() && !out.exists(), "{fault}: a part was left");
    }
    server.done(&["guest", "export", "a", text(&out)]);
    assert!(fs::read(&out).expect("a file") == fs::read(&memory_file).expect("a file"));
    server.refused(&["guest", "rm", "b"], &["there is no image b"]);
    drop(server.end());

    faults.read.store(FAULTS[0].raw_os_error(), Ordering::SeqCst);
    let line = ["guest", "serve", "--no-mlock", "--load", text(&saved)];
    assert_refused(&line, 1, &["cannot load", "give another file"]);
    faults.end();
    let load = ["--load", text(&saved)];
    drop(Server::start(tempfile::tempdir().expect("a folder"), &load, 1).end());
}
