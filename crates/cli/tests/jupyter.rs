//! Kernels for Jupyter: what is written where, and what is refused. Whether real kernels work under
//! them is tested with the Python package.

mod common;

use std::path::{Path, PathBuf};

use common::{assert_line, command};
use serde_json::Value;
use zfold_testing::executable;

/// Makes a program that takes the place of Python; `has` says whether ipykernel is there.
fn python(folder: &Path, has: bool) -> PathBuf {
    let path = folder.join(if has { "python-with" } else { "python-without" });
    let script = if has { "#!/bin/sh\necho /opt/bin/python\n" } else { "#!/bin/sh\nexit 1\n" };
    executable::script(&path, script);
    path
}

fn install(home: &Path, python: &Path, more: &[&str]) -> std::process::Output {
    let mut command = command(&["jupyter", "install", "--limit", "64MiB", "--python"]);
    command.arg(python).args(more).env("HOME", home);
    command.env_remove("XDG_DATA_HOME").env_remove("JUPYTER_DATA_DIR");
    command.output().expect("the program starts")
}

#[test]
fn a_kernel_runs_under_the_limit() {
    let home = tempfile::tempdir().expect("a folder");
    let python = python(home.path(), true);
    let output = install(home.path(), &python, &["--codec", "zstd"]);
    assert!(output.status.success(), "{output:?}");
    let file = home.path().join(".local/share/jupyter/kernels/zfold/kernel.json");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), file.to_string_lossy());
    let text = std::fs::read_to_string(&file).expect("written");
    let kernel: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(kernel["display_name"], "Python 3 (zfold, 64MiB)");
    assert_eq!(kernel["language"], "python");
    let argv: Vec<&str> =
        kernel["argv"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
    assert!(argv[0].ends_with("/zfold"), "{argv:?}");
    let rest = "run --limit 64MiB --codec zstd -- /opt/bin/python -m ipykernel_launcher -f \
                {connection_file}";
    assert_eq!(argv[1..].join(" "), rest);

    // Again, with another name for people; and below a prefix, under another name.
    let more = ["--display-name", "Small"];
    assert!(install(home.path(), &python, &more).status.success());
    assert!(std::fs::read_to_string(&file).expect("written").contains("\"Small\""));
    let prefix = home.path().join("venv");
    let more = ["--prefix", prefix.to_str().expect("text"), "--name", "other"];
    assert!(install(home.path(), &python, &more).status.success());
    assert!(prefix.join("share/jupyter/kernels/other/kernel.json").is_file());
}

#[test]
fn what_cannot_be_a_kernel_is_refused() {
    let home = tempfile::tempdir().expect("a folder");
    let (with, without) = (python(home.path(), true), python(home.path(), false));
    assert_line(&install(home.path(), &without, &[]), 1, &["ipykernel", "pip install"]);
    assert_line(&install(home.path(), Path::new("/none"), &[]), 1, &["/none", "--python"]);
    assert_line(&install(home.path(), &with, &["--name", "a/b"]), 2, &["'a/b'", "letters"]);
    let other = home.path().join(".local/share/jupyter/kernels/python3");
    std::fs::create_dir_all(&other).expect("a folder");
    std::fs::write(other.join("kernel.json"), r#"{"argv": ["python"]}"#).expect("written");
    assert_line(&install(home.path(), &with, &["--name", "python3"]), 1, &["python3", "--name"]);
}
