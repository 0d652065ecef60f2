//! What guests that do nothing take under a limit, seen from outside: the program itself serves
//! them, and a control group in which all of it is, this process too, says how much memory it has.
//!
//! `ZFOLD_PROGRAM` names the program, `ZFOLD_CGROUP` the folder of the group, `ZFOLD_GUEST_MEMORY`
//! the image, and the arguments the memory files that guests turn into, one for each; a guest with
//! `-` reads all of the image. `ZFOLD_LIMIT` is the limit, 512MiB without.

#[path = "../tests/vmm/mod.rs"]
mod vmm;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use vmm::{PAGE, Vmm};

/// A server in a folder of its own.
struct Server {
    child: Child,
    program: PathBuf,
    folder: tempfile::TempDir,
    socket: PathBuf,
}

impl Server {
    fn start(image: &str, limit: &str) -> Self {
        let program = PathBuf::from(std::env::var_os("ZFOLD_PROGRAM").expect("ZFOLD_PROGRAM"));
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Self::command(&program, folder.path());
        let image = format!("web={image}");
        command.args(["serve", "--no-mlock", "--resident-limit", limit, "--image", &image]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a socket");
        let socket = line.trim().split_once(' ').expect("a name and a path").1.into();
        Self { child, program, folder, socket }
    }

    fn command(program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", folder).arg("guest");
        command
    }

    /// Returns a number of what the server says of itself.
    fn number(&self, path: &str) -> u64 {
        let mut command = Self::command(&self.program, self.folder.path());
        let said = command.args(["stat", "--json"]).output().expect("an answer").stdout;
        let said: Value = serde_json::from_slice(&said).expect("JSON");
        said.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {said}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends its guests' memory with them, which have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the control group says, in MiB.
fn held() -> String {
    let folder = PathBuf::from(std::env::var_os("ZFOLD_CGROUP").expect("ZFOLD_CGROUP"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let mib = |text: String| text.trim().parse::<u64>().expect("a number") >> 20;
    let of = |two: [&str; 2]| two.iter().find_map(|name| read(name)).map(mib).expect("a group");
    let stat = read("memory.stat").expect("of memory");
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |bytes| mib(bytes.to_owned()))
    };
    let files = field("active_file") + field("inactive_file");
    format!(
        "{} MiB with {files} of files' caches, {} of guests' memory; at most {} so far",
        of(["memory.current", "memory.usage_in_bytes"]),
        field("shmem"),
        of(["memory.peak", "memory.max_usage_in_bytes"]),
    )
}

fn main() {
    if std::env::var_os("ZFOLD_STAND_IN").is_some() {
        return vmm::inside::run();
    }
    let files: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let image = std::env::var("ZFOLD_GUEST_MEMORY").expect("ZFOLD_GUEST_MEMORY");
    let limit = std::env::var("ZFOLD_LIMIT").unwrap_or_else(|_| "512MiB".to_owned());
    let pages = std::fs::metadata(&image).expect("a file").len() / PAGE as u64;
    let server = Server::start(&image, &limit);
    println!("a server of one image: {}", held());
    let start = || Vmm::start(&server.socket, pages, "memfd").expect("userfaultfd");
    let mut guests: Vec<Vmm> = files.iter().map(|_| start()).collect();
    let began = Instant::now();
    for (guest, file) in guests.iter_mut().zip(&files) {
        guest.say(&match file.as_str() {
            "-" => format!("time 0 {pages}"),
            file => format!("turn-into {file}"),
        });
    }
    guests.iter_mut().for_each(|guest| drop(guest.hear()));
    let end = Instant::now();
    println!("{} guests have touched all, after {:.1?}: {}", files.len(), end - began, held());
    let most = server.number("/resident_limit_bytes") / PAGE as u64;
    while server.number("/resident_pages") > most {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("below the limit {:.0?} later: {}", end.elapsed(), held());
    let (resident, out) = (server.number("/resident_pages"), server.number("/out_pages"));
    println!(
        "{resident} pages are there, {out} are out and kept, in {} MiB; {} have left, {} came back",
        server.number("/out_held_bytes") >> 20,
        server.number("/left_pages_total"),
        server.number("/returned_pages_total"),
    );
    drop(guests);
}
