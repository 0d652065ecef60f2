//! cloud-hypervisor: machines sent, and restored beforehand and on demand.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use zfold_testing::{wait_for, wait_until};

use super::{Vmm, programs, server};
use crate::machines::Receiving;
use crate::server::Server;
use crate::survival::kill;

/// A cloud-hypervisor, and what tests have of it.
struct Machine<'a> {
    /// Without a serial port before it has a machine.
    vmm: Vmm,
    folder: TempDir,
    its: &'a Its,
}

/// The programs, and the folder of the socket that is the serial port of every machine in turn.
struct Its {
    programs: [PathBuf; 2],
    folder: TempDir,
}

impl<'a> Machine<'a> {
    fn start(its: &'a Its, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let api = folder.path().join("api");
        let mut command = Command::new(&its.programs[0]);
        let vmm = Vmm::start(command.arg("--api-socket").arg(&api).args(arguments));
        let new = Self { vmm, folder, its };
        let is_there = || new.asks(&["ping"]).wait().expect("it ends").success();
        wait_until("its API is there", is_there);
        new
    }

    fn boot(its: &'a Its, guest: &Path) -> Self {
        let kernel = guest.to_str().expect("text");
        let serial = format!("socket={}", its.serial().display());
        let size = ["--memory", "size=128M,shared=on", "--cpus", "boot=1", "--kernel", kernel];
        let devices = ["--serial", &serial, "--console", "off", "--balloon", "size=0"];
        Self::start(its, &[&size[..], &devices].concat()).connected()
    }

    /// Connects to its serial port.
    fn connected(mut self) -> Self {
        let connect = || UnixStream::connect(self.its.serial());
        let stream = wait_for(connect);
        self.vmm.output = Box::new(BufReader::new(stream.try_clone().expect("a descriptor")));
        self.vmm.input = Box::new(stream);
        self
    }

    /// Starts a command of its API.
    fn asks(&self, words: &[&str]) -> Child {
        let mut command = Command::new(&self.its.programs[1]);
        command.arg("--api-socket").arg(self.folder.path().join("api")).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ch-remote starts")
    }

    /// Sends the machine, which then ends.
    fn save(mut self, server: &Server, arguments: &[&str]) {
        let receiving = Receiving::start(server, arguments);
        let to = format!("destination_url=unix:{},local=on", receiving.socket.display());
        self.asks(&["send-migration", &to]).wait().expect("it ends");
        let (done, said) = receiving.ends();
        assert!(done, "{said}");
        assert!(self.vmm.child.wait().expect("it ends").success());
        // It may have done that itself.
        let _ = std::fs::remove_file(self.its.serial());
    }

    fn restore(its: &'a Its, server: &Server, image: &str, on_demand: bool) -> Self {
        let new = Self::start(its, &[]);
        let socket = new.folder.path().join("restore");
        let from = format!("receiver_url=unix:{}", socket.display());
        let (mode, how) = match on_demand {
            true => (",memory_mode=postcopy", &["--resume", "--on-demand"][..]),
            false => ("", &["--resume"][..]),
        };
        let mut receiving = new.asks(&["receive-migration", &format!("{from}{mode}")]);
        wait_until("it listens", || socket.exists());
        let socket = socket.to_str().expect("text");
        server.done(&[&["guest", "send", image, socket], how].concat());
        receiving.wait().expect("it ends");
        new.connected()
    }
}

impl Its {
    fn serial(&self) -> PathBuf {
        self.folder.path().join("serial")
    }
}

/// A machine is saved over what it was restored from, again and again; on demand it outlives a
/// server, and gives memory up.
#[test]
fn machines_of_cloud_hypervisor_are_saved_and_restored_though_a_server_is_killed() {
    let names = ["ZFOLD_CLOUD_HYPERVISOR", "ZFOLD_CH_REMOTE"];
    let Some((programs, guest)) = programs(names) else { return };
    let its = Its { programs, folder: tempfile::tempdir().expect("a folder") };
    let server = server();
    let mut machine = Machine::boot(&its, &guest.program);
    assert_eq!(machine.vmm.told(b'f'), "filled");
    machine.save(&server, &["web"]);

    let mut copied = Machine::restore(&its, &server, "web", false);
    assert_eq!((copied.vmm.told(b'c'), copied.vmm.told(b'w')), ("right".into(), "written".into()));
    copied.save(&server, &["later", "--base", "web"]);

    let mut machine = Machine::restore(&its, &server, "later", true);
    assert_eq!(machine.vmm.told(b'w'), "written");
    kill(&server.stat());
    assert_eq!(machine.vmm.told(b'c'), "right");
    wait_until("it has all pages", || server.stat()["on_demand"] == 0);
    machine.save(&server, &["last", "--base", "later"]);

    let mut machine = Machine::restore(&its, &server, "last", true);
    assert_eq!(machine.vmm.told(b'b'), "given up");
    assert_eq!(server.stat()["on_demand"], 1, "all had come before");
    assert_eq!(
        (machine.vmm.told(b'c'), machine.vmm.told(b'b')),
        ("right".into(), "given up".into())
    );
    assert_eq!(machine.vmm.told(b'c'), "right");
    wait_until("it has all pages", || server.stat()["on_demand"] == 0);
    assert_eq!(
        (machine.vmm.told(b'b'), machine.vmm.told(b'c')),
        ("given up".into(), "right".into())
    );
    machine.save(&server, &["thin", "--base", "last"]);
    assert_eq!(Machine::restore(&its, &server, "thin", false).vmm.told(b'c'), "right");
    server.end();
}
