//! The installer, by itself and as a part of the action.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::skip::is_root;

use crate::common::{assert_line, needs, skip};
use crate::contrib;
use crate::release::Release;

fn install(from: &str, to: &Path) -> Output {
    installing(from, to).output().expect("it starts")
}

fn installing(from: &str, to: &Path) -> Command {
    let mut command = Command::new(contrib("devcontainer/zfold/install.sh"));
    command.env("FROM", from).env("TO", to);
    command
}

fn said(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat()
}

/// Checks that the folder has the program, and nothing besides.
fn assert_installed(to: &Path) {
    let names: Vec<_> = fs::read_dir(to).expect("a folder").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let output = Command::new(to.join("zfold")).arg("--version").output().expect("it starts");
    assert!(output.stdout.starts_with(b"zfold "), "{}", said(&output));
}

/// Installs twice: an update is the same.
fn install_twice(from: &str, certificate: &Path) {
    let to = tempdir().expect("a folder");
    for _ in 0..2 {
        let mut command = installing(from, &to.path().join("bin"));
        let output = command.env("CURL_CA_BUNDLE", certificate).output().expect("it starts");
        assert!(output.status.success(), "{from}: {}", said(&output));
        assert_installed(&to.path().join("bin"));
    }
}

#[test]
fn a_release_is_installed_from_a_folder_and_from_a_url() {
    let release = Release::new();
    install_twice(release.folder().to_str().expect("text"), Path::new("/dev/null"));
    needs!(Command::new("curl").arg("--version").output().is_ok(), "no curl");
    let Some(served) = release.serve() else { return skip("no python3") };
    install_twice(&served.address, &served.certificate());
    // Nothing comes by http, neither by itself nor after a redirect.
    let to = tempdir().expect("a folder");
    assert_line(&install(&served.plain, to.path()), 1, &["give FROM an https URL"]);
    let mut away = installing(&format!("{}/away", served.address), to.path());
    let output = away.env("CURL_CA_BUNDLE", served.certificate()).output().expect("it starts");
    assert!(!output.status.success() && said(&output).contains("is it a release of zfold?"));
    assert_eq!(fs::read_dir(to.path()).expect("a folder").count(), 0);
}

/// Of a forger who has changed the sums, too.
#[test]
fn an_archive_of_another_sum_than_the_given_one_is_refused() {
    let release = Release::new();
    let from = release.folder().to_str().expect("text").to_owned();
    let to = tempdir().expect("a folder");
    let mut other = installing(&from, to.path());
    let output = other.env("SHA256", "0".repeat(64)).output().expect("it starts");
    assert_line(&output, 1, &["is another one than expected"]);
    assert_eq!(fs::read_dir(to.path()).expect("a folder").count(), 0);
    let mut same = installing(&from, to.path());
    let output = same.env("SHA256", release.sum()).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert_installed(to.path());
}

#[test]
fn a_damaged_release_is_refused_and_nothing_changes() {
    let release = Release::new();
    let from = release.folder().display().to_string();
    let to = tempdir().expect("a folder");
    let refused = |line: &str| {
        let output = install(&from, to.path());
        assert_line(&output, 1, &[line]);
        assert_eq!(fs::read_dir(to.path()).expect("a folder").count(), 0);
    };
    let archive = release.archive();
    let mut bytes = fs::read(&archive).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).expect("written");
    refused("is damaged");
    let sums = release.folder().join("SHA256SUMS");
    let text = fs::read_to_string(&sums).expect("text");
    fs::write(&sums, text.replace(std::env::consts::ARCH, "vax")).expect("written");
    refused("no program for");
    // The copy that fails says why, too.
    fs::remove_file(&sums).expect("a file");
    let output = install(&from, to.path());
    assert!(said(&output).contains("is it a release of zfold?"), "{}", said(&output));
    assert_line(&install("", to.path()), 1, &["give FROM"]);
}

#[test]
fn the_action_installs_for_its_job_and_says_what_is_missing() {
    let action = fs::read_to_string(contrib("action/action.yml")).expect("text");
    let step = r#"run: '"$GITHUB_ACTION_PATH/setup"'"#;
    assert!(action.contains(step) && action.contains("FROM: ${{ inputs.from }}"), "{action}");
    let release = Release::new();
    let job = tempdir().expect("a folder");
    let paths = job.path().join("paths");
    let output = Command::new("sh")
        .args(["-ec", r#""$GITHUB_ACTION_PATH/setup""#])
        .env("GITHUB_ACTION_PATH", contrib("action"))
        .env("GITHUB_PATH", &paths)
        .env("RUNNER_TEMP", job.path())
        .env("FROM", release.folder())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", said(&output));
    let added = fs::read_to_string(&paths).expect("it was added to");
    assert_installed(Path::new(added.trim_end()));
    // What `zfold check` says is in the log of the job.
    assert!(said(&output).contains("userfaultfd"), "{}", said(&output));
}

/// A system without ACLs, on which the device is opened to all.
#[test]
fn the_action_says_so_if_it_opens_the_device_to_all() {
    needs!(
        is_root() && Path::new("/dev/userfaultfd").exists(),
        "needs root, another user, and /dev/userfaultfd"
    );
    let job = tempdir().expect("a folder");
    let script = "set -e; cd \"$0\"; chmod 777 .; cp -r \"$1/action\" \"$1/devcontainer\" .; \
                  cp -r \"$2\" release; chmod -R a+rX .; mkdir bin; \
                  printf '#!/bin/sh\\ntest \"$2\" != setfacl\\n' >bin/sudo; chmod 755 bin/sudo; \
                  PATH=$0/bin:$PATH exec setpriv --reuid=65534 --regid=65534 --clear-groups \
                  action/setup";
    let release = Release::new();
    let output = Command::new("sh")
        .args(["-c", script])
        .args([job.path(), &contrib(""), release.folder()])
        .env("GITHUB_PATH", job.path().join("paths"))
        .env("RUNNER_TEMP", job.path())
        .env("FROM", job.path().join("release"))
        .output()
        .expect("a shell");
    needs!(!said(&output).contains("setpriv: not found"), "no setpriv");
    assert!(output.status.success(), "{}", said(&output));
    let warned = said(&output).lines().any(|line| {
        line.starts_with("::warning::zfold: no ACL") && line.contains("all users of this machine")
    });
    assert!(warned, "{}", said(&output));
}

#[test]
fn the_feature_has_the_options_that_its_script_reads() {
    let text = fs::read(contrib("devcontainer/zfold/devcontainer-feature.json")).expect("text");
    let feature: Value = serde_json::from_slice(&text).expect("JSON");
    let script = fs::read_to_string(contrib("devcontainer/zfold/install.sh")).expect("text");
    let options = feature["options"].as_object().expect("options");
    assert_eq!(options.len(), 3);
    for option in options.keys() {
        // A feature gets each option as a variable in capitals.
        let variable = format!("${{{}:-", option.to_uppercase());
        assert!(script.contains(&variable), "no {variable} in the script");
    }
    assert_eq!(feature["capAdd"], serde_json::json!(["SYS_PTRACE"]));
}
