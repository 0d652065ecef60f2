//! The real VMMs, where the environment names their programs: `ZFOLD_FIRECRACKER`, and
//! `ZFOLD_CLOUD_HYPERVISOR` with `ZFOLD_CH_REMOTE`. Anything that can be executed will do, so a
//! script may give them arguments.
//!
//! The guest has no operating system. It fills 96 MiB of its memory, writes to it, and compares
//! every word, as it is told over its serial port.

mod cloud_hypervisor;
mod firecracker;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zfold_testing::compiled::{Compiled, compile};
use zfold_testing::process::Killed;

use crate::common::skip;
use crate::server::Server;

/// A running VMM, and its guest's serial port.
struct Vmm {
    child: Killed,
    input: Box<dyn Write>,
    output: Box<dyn BufRead>,
}

impl Vmm {
    /// Starts one whose serial port is its standard input and output.
    fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("the VMM starts");
        let input = Box::new(child.stdin.take().expect("a pipe"));
        let output = Box::new(BufReader::new(child.stdout.take().expect("a pipe")));
        Self { child: Killed(child), input, output }
    }

    /// Tells the guest what to do, and returns its answer; VMMs write lines of their own between.
    fn told(&mut self, command: u8) -> String {
        self.input.write_all(&[command]).expect("it listens");
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("text") > 0 {
            let said = line.trim();
            if ["filled", "written", "given up", "no balloon", "right", "wrong"].contains(&said) {
                return said.to_owned();
            }
            line.clear();
        }
        panic!("the VMM has ended: {:?}", self.child.wait());
    }
}

/// Returns the programs that these variables name, and the guest; says what is missing.
fn programs<const N: usize>(names: [&str; N]) -> Option<([PathBuf; N], Compiled)> {
    let found = names.map(env::var_os);
    if let Some(missing) = found.iter().position(Option::is_none) {
        skip(format_args!("{} names no program", names[missing]));
        return None;
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        skip(format_args!("/dev/kvm: {error}"));
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/real/payload.c");
    let alone = ["-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie"];
    let plain = ["-mno-red-zone", "-fno-stack-protector", "-fcf-protection=none", "-Wall"];
    let placed = ["-Werror", "-Wl,-N,-e,entry,-Ttext=0x100000,--build-id=none"];
    match compile(&source, &[&alone[..], &plain, &placed].concat()) {
        Ok(guest) => Some((found.map(|name| PathBuf::from(name.expect("looked at"))), guest)),
        Err(said) => {
            skip(said);
            None
        }
    }
}

/// Starts a server without images, in a folder of its own.
fn server() -> Server {
    Server::start(tempfile::tempdir().expect("a folder"), &[], 0)
}
