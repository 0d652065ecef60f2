//! Any bytes as a recorded trace, raw or packed: they are read or refused, and what was read is
//! what the header promised.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use zfold_compare::trace::Trace;

/// The parser takes files only; each fuzzing process has one.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("zfold-fuzz-{}.ztr", std::process::id())));

fuzz_target!(|data: &[u8]| {
    // With a header in front, so that half of the inputs come to the records.
    let mut bytes = Vec::new();
    if let [0..128, records @ ..] = data {
        bytes.extend(b"ZTRACE01");
        bytes.extend((records.len() as u64 / 16).to_le_bytes());
        bytes.extend(records);
    } else {
        bytes.extend(data.get(1..).unwrap_or_default());
    }
    std::fs::write(&*FILE, &bytes).expect("a temporary file");
    if let Ok(trace) = Trace::from_file(&FILE) {
        assert!(!trace.events().is_empty(), "a trace is never empty");
        assert!(trace.slots().count() as u64 <= trace.stores(), "slots are those of stores");
    }
});
