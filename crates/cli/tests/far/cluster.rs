//! A disk over a cluster whose masters stop and end while fio verifies.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::tempdir;
use zfold_testing::redis::{self, Cluster};
use zfold_testing::skip::installed;
use zfold_testing::wait::{Over, wait_until};

use crate::common::needs;
use crate::server::Server;
use crate::tools::{attempt, fio_arguments};

/// The device is verified in parts, each by a fio of its own.
const PARTS: u64 = 4;

/// How much of it all.
struct Form {
    part_mib: u64,
    limit: &'static str,
    /// How long a master stops.
    stop: Duration,
}

const SHORT: Form = Form { part_mib: 32, limit: "16MiB", stop: Duration::from_secs(3) };

const LONG: Form = Form { part_mib: 512, limit: "256MiB", stop: Duration::from_secs(20) };

fn form() -> Form {
    if std::env::var_os("ZFOLD_LONG").is_some_and(|told| told == "1") { LONG } else { SHORT }
}

/// fio on a device.
struct Fio<'a> {
    dir: &'a Path,
    uri: String,
    part_mib: u64,
}

impl Fio<'_> {
    /// Runs fio on a part, or fails.
    fn run(&self, part: u64, how: &str) {
        let Self { part_mib, uri, .. } = self;
        let line = format!(
            "--ioengine=nbd --direct=1 --bs=64k --iodepth=4 --rw=randwrite --randseed={part} \
             --size={part_mib}m --offset={}m --verify=crc32c --verify_fatal=1 {how}",
            part * part_mib
        );
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "900", "fio"]).current_dir(self.dir);
        let begun = Instant::now();
        let output = command.args(fio_arguments(&format!("--uri={uri}"), &line)).output();
        let output = output.expect("fio starts");
        println!("part {part} {how}: {:.1} s", begun.elapsed().as_secs_f64());
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "part {part} {how}: {said} {complaint}");
    }

    fn write(&self, part: u64) {
        self.run(part, "--do_verify=0");
    }

    fn verify(&self, part: u64) {
        self.run(part, "--verify_only=1");
    }
}

/// Returns whether all nodes that are alive call the cluster whole.
fn is_whole(cluster: &Cluster, without: &[usize]) -> bool {
    let mut alive = (0..cluster.nodes.len()).filter(|node| !without.contains(node));
    alive.all(|node| cluster.nodes[node].cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
}

/// Stops a master for a while, and ends another.
fn disturb(cluster: &mut Cluster, form: &Form) {
    let stopped = cluster.masters()[0];
    cluster.nodes[stopped].stop();
    thread::sleep(form.stop);
    cluster.nodes[stopped].go_on();
    wait_until("the cluster is whole", || is_whole(cluster, &[]));
    let killed = cluster.masters()[1];
    cluster.nodes[killed].kill();
    wait_until("a replica takes over", || is_whole(cluster, &[killed]));
    println!("stopped {stopped}, killed {killed}");
}

#[test]
fn with_two_copies_fio_finds_what_it_wrote_whatever_happens_to_a_master() {
    needs!(redis::ready() && installed(&["fio"]));
    needs!(
        attempt("fio", &["--enghelp=nbd"]).is_ok_and(|help| help.contains("uri")),
        "fio has no NBD engine"
    );
    let (form, runtime, mut cluster) = (form(), tempdir().expect("a directory"), Cluster::start());
    let (place, size) = (cluster.place(2), format!("{}MiB", PARTS * form.part_mib));
    let line = ["--size", &size, "--limit", form.limit, "--backing", &place];
    let server = Server::start(runtime.path(), &line);
    let uri = server.addresses[0].split_whitespace().next().expect("an address").to_owned();
    let fio = Fio { dir: runtime.path(), uri, part_mib: form.part_mib };
    (0..PARTS).for_each(|part| fio.write(part));

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Also where it panics, or fio would go on for ever.
            let _over = Over(&is_over);
            disturb(&mut cluster, &form);
        });
        for part in (0..PARTS).cycle() {
            fio.verify(part);
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    (0..PARTS).for_each(|part| fio.verify(part));

    let stat = server.stat();
    let far = &stat["disks"][0]["far"];
    println!("{far:#}");
    assert_eq!(stat["nbd"]["errors_total"], 0);
    assert!(far["live_bytes"].as_u64() > Some(form.part_mib << 20), "most is there: {far}");
    assert!(far["gets_total"].as_u64() > Some(0), "{far}");
    assert_eq!(server.stop().0, Some(0));
}
