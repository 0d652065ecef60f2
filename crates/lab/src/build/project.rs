//! The project to build: C files with one large header, from a seed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use zfold_compare::rng::SplitMix64;

/// Types that the header of the project declares, each with a function.
const TYPES: u64 = 1500;
/// Functions in each file.
const FUNCTIONS: u64 = 20;

/// A project that is built again and again at one place, from the same files each time.
#[derive(Debug)]
pub(super) struct Project {
    files: usize,
    seed: u64,
    folder: PathBuf,
}

/// The result of a build: a hash of every object file and archive, by name.
pub(super) type Objects = BTreeMap<PathBuf, u64>;

impl Project {
    /// Returns a project of `files` C files, to be built in `folder`, which need not exist.
    pub(super) fn new(files: usize, seed: u64, folder: PathBuf) -> Self {
        Self { files, seed, folder }
    }

    /// Returns where it is built.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts the files there, and nothing else.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn unpack(&self) -> io::Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        generate(&self.folder, self.files, self.seed)
    }

    /// Returns what the build made.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn objects(&self) -> io::Result<Objects> {
        let mut objects = Objects::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "o" || kind == "a") {
                let mut hasher = DefaultHasher::new();
                hasher.write(&fs::read(&path)?);
                objects.insert(path, hasher.finish());
            }
        }
        Ok(objects)
    }
}

/// Writes a project of `files` C files, for each of which a compiler needs about 60 MiB.
fn generate(folder: &Path, files: usize, seed: u64) -> io::Result<()> {
    fs::create_dir(folder)?;
    let mut rng = SplitMix64::new(seed);
    fs::write(folder.join("types.h"), header(&mut rng))?;
    for number in 0..files {
        fs::write(folder.join(format!("part{number}.c")), part(number, &mut rng))?;
    }
    let objects: Vec<String> = (0..files).map(|number| format!("part{number}.o")).collect();
    let objects = objects.join(" ");
    let makefile = format!(
        "CFLAGS = -O1 -w\nparts.a: {objects}\n\t$(AR) rcD $@ {objects}\n{objects}: types.h\n"
    );
    fs::write(folder.join("Makefile"), makefile)
}

/// Returns a header with many types that contain each other, and functions that call each other.
fn header(rng: &mut SplitMix64) -> String {
    let mut text = String::from(
        "#include <errno.h>\n#include <math.h>\n#include <netinet/in.h>\n#include <pthread.h>\n\
         #include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>\n\
         struct s0 { int a; double b[2]; };\n\
         static inline int f0(struct s0 *p, int x) { return p->a ^ x; }\n",
    );
    for this in 1..TYPES {
        // What is contained is one of the first, so that types do not grow without bound.
        let (near, inner) = (rng.below(this), rng.below(this.min(20)));
        let (len, modulus) = (2 + rng.below(7), 2 + rng.below(13));
        let (shift, offset) = (1 + rng.below(7), rng.below(1000));
        write!(
            text,
            "struct s{this} {{ int a; double b[{len}]; struct s{near} *p; struct s{inner} s; }};\n\
             static inline int f{this}(struct s{this} *p, int x) {{\n\
             \x20   int y = x * {this} + p->a;\n\
             \x20   for (int i = 0; i < {len}; i++) {{\n\
             \x20       y ^= (int)(p->b[i] * y);\n\
             \x20       if (y % {modulus} == 0) y += f{inner}(&p->s, y - i);\n\
             \x20   }}\n\
             \x20   switch (y & 7) {{\n\
             \x20   case 1: return y + {offset};\n\
             \x20   case 3: return f{near}(p->p, y >> {shift});\n\
             \x20   default: return y > {this} ? y - 5 : y * 3;\n\
             \x20   }}\n\
             }}\n"
        )
        .expect("a String takes all");
    }
    text
}

/// Returns a C file with functions on some of the types.
fn part(number: usize, rng: &mut SplitMix64) -> String {
    let mut text = String::from("#include \"types.h\"\n");
    for this in 0..FUNCTIONS {
        let (a, b, bit) = (rng.below(TYPES), rng.below(TYPES), 1 << rng.below(8));
        write!(
            text,
            "int g{number}_{this}(struct s{a} *p, struct s{b} *q, int n) {{\n\
             \x20   int r = 0;\n\
             \x20   for (int i = 0; i < n; i++) {{\n\
             \x20       r += f{a}(p, i) ^ f{b}(q, r);\n\
             \x20       if (r & {bit}) r -= f{a}(p, r);\n\
             \x20   }}\n\
             \x20   return r;\n\
             }}\n"
        )
        .expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_files_and_objects_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read(folder.path().join("built").join(name)).unwrap();
        let project = Project::new(3, 1, folder.path().join("built"));
        project.unpack().unwrap();
        let first = [read("types.h"), read("part2.c"), read("Makefile")];
        for name in ["part0.o", "parts.a"] {
            fs::write(project.folder.join(name), name).unwrap();
        }
        let objects = project.objects().unwrap();
        let names: Vec<_> = objects.keys().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["part0.o", "parts.a"]);
        fs::write(project.folder.join("parts.a"), "other").unwrap();
        let changed = project.objects().unwrap();
        assert_eq!(objects.iter().filter(|(path, hash)| changed[*path] != **hash).count(), 1);
        project.unpack().unwrap();
        assert_eq!([read("types.h"), read("part2.c"), read("Makefile")], first);
        assert!(project.objects().unwrap().is_empty());
        let other = Project::new(3, 2, folder.path().join("built"));
        other.unpack().unwrap();
        assert_ne!(read("types.h"), first[0]);
    }
}
