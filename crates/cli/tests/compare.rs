//! `zfold compare` from outside: results in every format, and one clear line for each bad input.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::{assert_line, assert_refused, command, results, skip, zfold};
use serde_json::Value;
use zfold_testing::{Random, executable};

const PAGE: usize = 4096;

/// Writes a file for one test and returns its path.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("temporary file");
    path.to_str().expect("a plain path").to_owned()
}

/// Returns pages of which a part compresses well, some not at all, and every eighth is zero.
fn pages(count: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut byte = |position: usize| {
        let (page, noise) = (position / PAGE, random.word() as u8);
        match page % 8 {
            7 => 0,
            6 => noise,
            _ => noise & if position % 64 < page % 6 * 10 { 0xff } else { 3 },
        }
    };
    (0..count * PAGE).map(&mut byte).collect()
}

fn records(arguments: &[&str]) -> Vec<Value> {
    let json = [&["compare", "--format", "json"], arguments].concat();
    let document: Value = serde_json::from_str(&results(&json)).expect("JSON");
    assert_eq!(document["schema"], "zfold.compare/2");
    document["records"].as_array().expect("records").clone()
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("{field} of {record}"))
}

// Results.

#[test]
fn table_has_a_row_per_combination_and_ends_in_a_sentence() {
    let file = file("table.pages", &pages(32));
    let text = results(&["compare", "--file", &file]);
    for (allocator, codec) in [("zbud", "lz4"), ("z3fold", "zstd"), ("zsmalloc", "zstd")] {
        let row = |line: &&str| line.starts_with(codec) && line.contains(allocator);
        assert_eq!(text.lines().filter(row).count(), 2, "{text}");
    }
    assert!(text.contains("\n\ntable.pages: 32 pages (128.0 KiB)\n"), "{text}");
    let last = text.lines().last().expect("a line");
    let first = "On these 32 pages (128.0 KiB) the best choice is ";
    assert!(last.starts_with(first) && last.ends_with(" %)."), "{last}");
}

#[test]
fn json_has_the_documented_fields() {
    let file = file("json.pages", &pages(64));
    let records = records(&["--file", &file, "--codecs", "lz4"]);
    let allocators: Vec<&Value> = records.iter().map(|record| &record["allocator"]).collect();
    assert_eq!(allocators, ["zbud", "z3fold", "zsmalloc", "fit"]);
    for record in &records {
        assert_eq!((&record["input"], &record["codec"]), (&"json.pages".into(), &"lz4".into()));
        assert_eq!((number(record, "pages"), number(record, "same_filled")), (64, 8));
        assert_eq!(number(record, "pool_bytes_emptied"), 0);
        let (half, full) =
            (number(record, "pool_bytes_half_compacted"), number(record, "pool_bytes"));
        assert!(number(record, "payload_bytes") <= full, "{record}");
        assert!(half <= number(record, "pool_bytes_half_freed") && half < full, "{record}");
        for field in ["raw", "rejected", "pool_bytes_refilled", "metadata_bytes", "rss_bytes"] {
            number(record, field);
        }
        assert!(number(record, "rss_bytes_emptied") <= 1 << 20, "{record}");
        for times in ["store_ns", "load_ns"] {
            let at = |quantile| number(&record[times], quantile);
            assert!(at("p50") > 0 && at("mean") > 0);
            assert!(at("p50") <= at("p90") && at("p90") <= at("p99"));
            assert!(at("p99") <= at("p999") && at("p999") <= at("max"));
        }
        assert_eq!(record["verified"], true);
    }
    assert_eq!((&records[0]["chain"], &records[0]["chooser"]), (&Value::Null, &Value::Null));
    assert_eq!((&records[2]["chain"], &records[2]["chooser"]), (&8.into(), &"new".into()));
}

#[test]
fn csv_is_exact_unless_it_goes_to_a_terminal() {
    let name = "a\tb\u{1b}[31m\u{202e}";
    let file = file(name, &pages(16));
    let arguments =
        ["compare", "--file", &file, "--codecs", "lz4", "--format", "csv", "--allocators", "zbud"];
    assert!(results(&arguments).contains(name), "to a pipe");
    let mut terminal = Command::new("script");
    terminal.args([
        "-qec",
        "\"$zfold\" compare --file \"$file\" --codecs lz4 --allocators zbud \
         --format csv",
        "/dev/null",
    ]);
    terminal.env("zfold", command(&[]).get_program()).env("file", &file).env("SHELL", "/bin/sh");
    let Ok(output) = terminal.stdin(Stdio::null()).output() else {
        return skip("no script (package bsdutils)");
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("a\\tb\\u{1b}[31m\\u{202e}"), "{shown}");
    assert!(!shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn builtin_captures_are_the_default() {
    let records = records(&["--allocators", "zsmalloc", "--codecs", "lz4"]);
    let inputs: Vec<&Value> = records.iter().map(|record| &record["input"]).collect();
    assert_eq!(inputs, ["all", "cc1", "node", "numpy", "postgres", "rustc"]);
    assert_eq!(number(&records[0], "pages"), 5120);
    assert!(records[1..].iter().all(|record| number(record, "pages") == 1024));
}

#[test]
fn resident_memory_is_what_the_pool_says() {
    for record in records(&["--codecs", "lz4"]).iter().take(3) {
        let said = number(record, "pool_bytes") + number(record, "metadata_bytes");
        let resident = number(record, "rss_bytes");
        assert!(resident.abs_diff(said) <= said / 50, "{record}");
    }
}

#[test]
fn table_of_several_inputs_begins_with_all_and_fits_100_columns() {
    let text = results(&["compare"]);
    let (tables, sentence) = text.trim_end().rsplit_once('\n').expect("lines");
    assert!(sentence.starts_with("On these 5120 pages (20.0 MiB) the best choice is "), "{text}");
    assert!(tables.lines().all(|line| line.chars().count() <= 100), "{text}");
    let captions: Vec<&str> = tables.lines().filter(|line| line.contains(" pages (")).collect();
    let all = "all: 5120 pages (20.0 MiB) in one pool";
    assert_eq!((captions.len(), captions[0], captions[6]), (7, all, all), "{text}");
}

#[test]
fn default_seed_is_that_of_the_kernel_runs() {
    let file = file("seed.pages", &pages(64));
    let sizes = |seed: &[&str]| {
        let records = records(&[&["--file", &file, "--codecs", "lz4"], seed].concat());
        let sizes = |record: &Value| {
            (number(record, "pool_bytes_half_freed"), number(record, "pool_bytes_refilled"))
        };
        records.iter().map(sizes).collect::<Vec<_>>()
    };
    let default = sizes(&[]);
    assert_eq!(default, sizes(&["--seed", "88172645463325252"]));
    assert_ne!(default, sizes(&["--seed", "5"]));
}

#[test]
fn presets_decide_about_pages_that_do_not_compress() {
    let file = file("preset.pages", &pages(32));
    let of = |preset| records(&["--file", &file, "--codecs", "lz4", "--preset", preset]);
    let (old, new) = (of("linux-6.1"), of("linux-6.18"));
    assert!(old.iter().all(|record| number(record, "rejected") >= 4), "{old:?}");
    assert!(old.iter().all(|record| number(record, "raw") == 0), "{old:?}");
    assert_eq!((&old[2]["chain"], &old[2]["chooser"]), (&4.into(), &"old".into()));
    assert!(number(&new[2], "rejected") == 0 && number(&new[2], "raw") >= 4, "{new:?}");
    assert_eq!((&new[2]["chain"], &new[2]["preset"]), (&8.into(), &"linux-6.18".into()));
}

#[test]
fn files_are_cut_in_larger_pages() {
    let file = file("large.pages", &pages(32));
    let records = records(&["--file", &file, "--codecs", "lz4", "--page-size", "16KiB"]);
    assert!(records.iter().all(|record| number(record, "pages") == 8));
    assert!(records.iter().all(|record| number(record, "page_size") == 16384));
}

#[test]
fn limit_rejects_what_does_not_fit() {
    let file = file("limit.pages", &pages(256));
    let options = ["--file", &file, "--codecs", "lz4", "--limit", "384KiB"];
    for record in records(&options) {
        assert!((1..256).contains(&number(&record, "rejected")), "{record}");
        assert!(number(&record, "pool_bytes_peak") <= 384 << 10, "{record}");
    }
}

#[test]
fn any_file_is_cut_in_pages_and_sampled() {
    let file = file("any.bin", &pages(64)[1..]);
    let records = records(&["--file", &file, "--codecs", "lz4", "--allocators", "zbud"]);
    assert_eq!((&records[0]["input"], number(&records[0], "pages")), (&"any.bin".into(), 64));
    let output = zfold(&["compare", "--file", &file, "--sample", "64KiB", "--format", "csv"]);
    assert_line(&output, 0, &["16 of its 64 pages", "--sample 64KiB"]);
}

/// Returns a process that runs and waits for its input to end.
fn waiting_process() -> Child {
    let mut cat = Command::new("cat");
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat starts");
    // It has memory when it has answered.
    cat.stdin.as_mut().expect("a pipe").write_all(b"?").expect("cat reads");
    cat.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("cat writes");
    cat
}

#[test]
fn memory_of_a_process_is_compared() {
    let mut process = waiting_process();
    let pid = process.id().to_string();
    let arguments = ["compare", "--pid", &pid, "--codecs", "lz4", "--format", "json"];
    let output = zfold(&arguments);
    drop(process.stdin.take());
    process.wait().expect("cat ends with its input");
    if output.status.code() == Some(1) {
        // A system that lets nobody read another process still has to say so.
        return assert_line(&output, 1, &["permission denied", "ptrace"]);
    }
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let record = &document["records"][0];
    assert_eq!(record["input"], format!("pid-{pid}"));
    assert!(number(record, "pages") > 0 && record["verified"] == true);
}

#[test]
fn reader_that_leaves_is_no_failure() {
    let file = file("pipe.pages", &pages(16));
    for arguments in [&["compare", "--file", &file][..], &["compare", "--help"]] {
        let mut command = command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("end");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    }
}

// Bad input.

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let file = file("full.pages", &pages(16));
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = command(&["compare", "--file", &file]).stdout(full).output().expect("start");
    assert_line(&output, 1, &["cannot write the results"]);
}

#[test]
fn what_cannot_be_compared_is_named_with_the_remedy() {
    let empty = file("empty.pages", b"");
    let large = file("nofit.pages", &pages(16)[..PAGE * 6]);
    let missing = ["cannot read /no/such/file: no such file or directory", "built-in captures"];
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--file", "/no/such/file"], &missing),
        (&["--file", "/"], &["cannot read /: is a directory"]),
        (&["--file", &empty], &["is empty"]),
        (&["--pid", "4294967295"], &["there is no process 4294967295"]),
        (&["--file", &large, "--limit", "1KiB"], &["no page fits", "of 1024 bytes", "--limit"]),
    ];
    for (input, parts) in cases {
        assert_refused(&[&["compare"], input].concat(), 1, parts);
    }
}

#[test]
fn process_of_another_user_needs_permission() {
    let mut zfold = command(&["compare", "--pid", "1"]);
    if std::fs::read("/proc/1/auxv").is_ok() {
        if !rustix::process::geteuid().is_root() {
            // As in a container, where all processes may be one user's.
            return skip("process 1 is this user's");
        }
        // The tests run as root, so they run the program as nobody, from where nobody can.
        let copy = std::env::temp_dir().join(format!("zfold-{}", std::process::id()));
        executable::copy(env!("CARGO_BIN_EXE_zfold"), &copy, "755");
        zfold = Command::new(&copy);
        zfold.args(["compare", "--pid", "1"]).uid(65534).gid(65534);
        let output = zfold.output().expect("the program starts");
        std::fs::remove_file(copy).expect("the copy");
        return assert_line(&output, 1, &["permission denied", "sudo zfold compare --pid 1"]);
    }
    let output = zfold.output().expect("the program starts");
    assert_line(&output, 1, &["permission denied", "sudo zfold compare --pid 1"]);
}

#[test]
fn wrong_arguments_are_answered_with_those_that_work() {
    let cases: [(&[&str], &[&str]); 10] = [
        (&["--allocators", "slab"], &["slab", "--allocators", "zbud, z3fold, zsmalloc, fit"]),
        (&["--codecs", "rar"], &["rar", "--codecs", "lz4, page, zstd, lzo"]),
        (&["--preset", "linux-2.4"], &["linux-2.4", "--preset", "linux-6.1, linux-6.18"]),
        (&["--page-size", "8KiB"], &["8KiB", "--page-size", "4KiB, 16KiB, 64KiB"]),
        (&["--format", "xml"], &["xml", "--format", "table, json, csv"]),
        (&["--chain", "3"], &["--chain", "4..=16"]),
        (&["--codecs", "zstd:99"], &["-7 to 22"]),
        (&["--pid", "-5"], &["-5"]),
        (&["--alocators", "zbud"], &["--alocators", "'--allocators'"]),
        (&["stray"], &["stray"]),
    ];
    for (arguments, parts) in cases {
        assert_refused(&[&["compare"], arguments].concat(), 2, parts);
    }
    assert_refused(&["compete"], 2, &["compete", "compare"]);
    assert_refused(&[], 2, &["compare", "lab", "completions"]);
    assert_refused(&["completions", "tcsh"], 2, &["bash", "zsh", "fish"]);
}
