//! What compilers get to compile: one large file from a package, and generated ones.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::needs::workload;

/// A package whose only use here is that SQLite's source, in one file, is in it.
const MANIFEST: &str = r#"
[package]
name = "source"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
libsqlite3-sys = { version = "=0.35.0", features = ["bundled"] }

[workspace]
"#;

/// Returns the path of SQLite's source, fetched by Cargo; an error says why there is none.
pub(crate) fn sqlite() -> Result<&'static Path, &'static str> {
    static SOURCE: LazyLock<Result<PathBuf, String>> = LazyLock::new(fetch);
    match &*SOURCE {
        Ok(path) => Ok(path),
        Err(reason) => Err(reason),
    }
}

fn fetch() -> Result<PathBuf, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let manifest = dir.path().join("Cargo.toml");
    fs::write(&manifest, MANIFEST).map_err(|error| error.to_string())?;
    fs::write(dir.path().join("lib.rs"), "").map_err(|error| error.to_string())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo does not get libsqlite3-sys: {}", said.trim()));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut manifests = packages
        .filter(|package| package["name"] == "libsqlite3-sys")
        .filter_map(|package| package["manifest_path"].as_str());
    let manifest = manifests.next().ok_or("no libsqlite3-sys in what cargo tells")?;
    let source = Path::new(manifest).with_file_name("sqlite3").join("sqlite3.c");
    source.is_file().then_some(source).ok_or_else(|| "no sqlite3.c in libsqlite3-sys".to_owned())
}

/// Writes a `Makefile` that makes `./project` of so many large objects.
pub(crate) fn c_project(dir: &Path, objects: usize) {
    let objects: Vec<_> = (0..objects).map(|object| format!("part{object:02}.o")).collect();
    let source = workload("space.c");
    let makefile = format!(
        "project: main.o {}\n\t$(CC) -pthread -o $@ $^\n\
         part%.o:\n\t$(CC) -O2 -w -Dmain=part$* -c -o $@ {source}\n",
        objects.join(" ")
    );
    write(dir, "Makefile", &makefile);
    write(dir, "main.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); }\n");
}

/// Writes a Rust crate without dependencies, of `modules` modules, to `crate.rs`.
pub(crate) fn rust_crate(dir: &Path, modules: usize) {
    let mut text = String::from("use std::collections::{BTreeMap, HashMap};\n\n");
    for module in 0..modules {
        let _ = write!(
            text,
            "#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]\n\
             pub enum Node{module} {{ Leaf(u64), Pair(Box<Node{module}>, Box<Node{module}>) }}\n\
             impl Node{module} {{\n\
                 pub fn build(depth: u32, seed: u64) -> Self {{\n\
                     if depth == 0 {{ return Self::Leaf(seed.rotate_left({module})); }}\n\
                     let next = seed.wrapping_mul({module} + 3);\n\
                     let (a, b) = (Self::build(depth - 1, next), Self::build(depth - 1, !next));\n\
                     Self::Pair(Box::new(a), Box::new(b))\n\
                 }}\n\
                 pub fn index(&self, by: &mut BTreeMap<Self, HashMap<u64, String>>) {{\n\
                     if let Self::Pair(a, b) = self {{ a.index(by); b.index(by); }}\n\
                     let text = format!(\"{{self:?}}\");\n\
                     let key = text.len() as u64;\n\
                     by.entry(self.clone()).or_default().insert(key, text);\n\
                 }}\n\
             }}\n\
             pub fn run{module}(depth: u32) -> Vec<(u64, String)> {{\n\
                 let mut by = BTreeMap::new();\n\
                 Node{module}::build(depth, {module}).index(&mut by);\n\
                 let mut all: Vec<_> = by.into_values().flatten().collect();\n\
                 all.sort();\n\
                 all.dedup_by(|a, b| a.0 == b.0);\n\
                 all\n\
             }}\n\n"
        );
    }
    write(dir, "crate.rs", &text);
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
}
