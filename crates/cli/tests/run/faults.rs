//! Backing files that fail under a run: it ends, and reads no wrong byte.

use std::sync::atomic::Ordering;

use zfold_testing::skip::has_program;

use crate::common::{command, needs};
use crate::faulty::{FAULTS, Mounted};
use crate::runs::{can_manage, text};

/// Keeps 16 MiB that do not compress, and says whether they are what was written.
const KEEPER: &str = r#"
import random
def pages():
    numbers = random.Random(1)
    return (numbers.randbytes(4096) for _ in range(16 << 8))
kept = list(pages())
print(all(one == other for one, other in zip(kept, pages())))
"#;

#[test]
fn a_run_whose_backing_file_fails_ends_with_the_reason() {
    needs!(has_program("python3"), "no python3");
    needs!(can_manage());
    let Some(on) = Mounted::new() else { return };
    let backing = on.path("cold");
    let run = |named: &str| {
        let limits = ["run", "--limit", "8MiB", "--store-limit", "4MiB", "--backing", named];
        let line = [&limits[..], &["--backing-size", "64MiB", "--", "python3", "-c", KEEPER]];
        let output = command(&line.concat()).output().expect("it starts");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let named = backing.to_str().expect("text");
    let whole = run(named);
    assert_eq!((whole.0, &*whole.1), (Some(0), "True\n"), "{}", whole.2);
    for fault in FAULTS {
        for place in [&on.faults.write, &on.faults.read] {
            place.store(fault.raw_os_error(), Ordering::SeqCst);
            let (status, printed, said) = run(named);
            assert_eq!((status, &*printed), (Some(125), ""), "{fault}: {said}");
            assert!(said.lines().count() == 1 && said.starts_with("zfold: cannot "), "{said}");
            on.faults.end();
        }
    }
}
