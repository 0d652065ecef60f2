//! What compilers get to compile.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::needs::workload;

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
