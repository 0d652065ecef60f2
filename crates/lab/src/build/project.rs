//! The projects to build: a C project of this experiment's own, or one that is given.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use zfold_compare::rng::SplitMix64;

use crate::experiment::harness::turns::Fault;
use crate::experiment::system::child::run as run_tool;

/// Types that the header of the project declares, each with a function.
const TYPES: u64 = 1500;
/// Functions in each file.
const FUNCTIONS: u64 = 20;

/// A project that is built again and again at one place, from the same files each time.
#[derive(Debug)]
pub(crate) struct Project {
    source: Source,
    folder: PathBuf,
}

#[derive(Debug)]
enum Source {
    /// This many C files with one header.
    Generated { files: usize, seed: u64 },
    /// The files of a folder.
    Given(PathBuf),
}

/// The result of a build: a hash of every object file and archive, by name.
pub(super) type Objects = BTreeMap<PathBuf, u64>;

impl Project {
    /// Returns a project of `files` C files, to be built in `folder`, which need not exist.
    pub(crate) fn generated(files: usize, seed: u64, folder: PathBuf) -> Self {
        Self { source: Source::Generated { files, seed }, folder }
    }

    /// Returns the project in `given`, a copy of which is built in `folder`.
    pub(super) fn given(given: &Path, folder: PathBuf) -> Self {
        Self { source: Source::Given(given.to_owned()), folder }
    }

    /// Puts the files there, and nothing else.
    ///
    /// # Errors
    /// [`Fault::Missing`] if a given folder cannot be copied, [`Fault::Failed`] if the files cannot
    /// be written.
    pub(crate) fn unpack(&self) -> Result<(), Fault> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        match &self.source {
            Source::Generated { files, seed } => Ok(generate(&self.folder, *files, *seed)?),
            Source::Given(given) => {
                // A given folder may have anything in it; the tool keeps links and times.
                let mut copy = Command::new("cp");
                run_tool(copy.args(["-a", "--"]).arg(given).arg(&self.folder)).map(drop)
            }
        }
    }

    /// Returns the command that builds it, without the program `make` itself.
    pub(super) fn make_args(&self, jobs: u32) -> Vec<String> {
        let folder = self.folder.display();
        vec!["-s".to_owned(), "-C".to_owned(), folder.to_string(), format!("-j{jobs}")]
    }

    /// Returns what the build made.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn objects(&self) -> io::Result<Objects> {
        let mut objects = Objects::new();
        collect(&self.folder, &mut objects)?;
        Ok(objects)
    }
}

/// Adds the object files and archives below `folder`.
fn collect(folder: &Path, objects: &mut Objects) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let is_object = path.extension().is_some_and(|kind| kind == "o" || kind == "a");
        match entry? {
            kind if kind.is_dir() => collect(&path, objects)?,
            kind if kind.is_file() && is_object => {
                let mut hasher = DefaultHasher::new();
                hasher.write(&fs::read(&path)?);
                objects.insert(path, hasher.finish());
            }
            _ => {}
        }
    }
    Ok(())
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
    fn the_same_seed_gives_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read(folder.path().join("built").join(name)).unwrap();
        let project = Project::generated(3, 1, folder.path().join("built"));
        project.unpack().unwrap();
        let first = [read("types.h"), read("part2.c"), read("Makefile")];
        fs::write(project.folder.join("part0.o"), "left behind").unwrap();
        project.unpack().unwrap();
        assert_eq!([read("types.h"), read("part2.c"), read("Makefile")], first);
        assert!(!project.folder.join("part0.o").exists());
        let other = Project::generated(3, 2, folder.path().join("built"));
        other.unpack().unwrap();
        assert_ne!(read("types.h"), first[0]);
    }

    #[test]
    fn objects_are_found_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let given = folder.path().join("given");
        fs::create_dir_all(given.join("a/b")).unwrap();
        for name in ["a/b/x.o", "y.a", "z.c"] {
            fs::write(given.join(name), name).unwrap();
        }
        let project = Project::given(&given, folder.path().join("built"));
        project.unpack().unwrap();
        let objects = project.objects().unwrap();
        let names: Vec<_> = objects.keys().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["x.o", "y.a"]);
        fs::write(project.folder.join("y.a"), "other").unwrap();
        let changed = project.objects().unwrap();
        assert_eq!(objects.iter().filter(|(path, hash)| changed[*path] != **hash).count(), 1);
        let none = Project::given(&folder.path().join("none"), folder.path().join("built"));
        assert!(matches!(none.unpack(), Err(Fault::Missing(_))));
    }
}
