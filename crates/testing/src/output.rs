//! Checks how a program of zfold ends, and its output.

use std::process::Output;

/// Returns stdout of a program that must have succeeded and said nothing else.
pub fn results(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Checks that a program has ended with `status` and one line on stderr that holds each of `parts`.
pub fn assert_line(output: &Output, status: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.matches('\n').count(), 1, "{said}");
    assert!(said.starts_with("zfold: ") && said.ends_with('\n'), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}
