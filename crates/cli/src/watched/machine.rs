//! The memory of this machine, how short of it tasks are, and what the kernel itself compresses.

use std::fs;
use std::path::Path;

use serde::Serialize;
use zfold_compare::proc::bytes;

use crate::shared::table::short_size;

/// The machine now. Figures that its kernel does not have, or does not report, are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Machine {
    pub(crate) memory_bytes: Option<u64>,
    /// The memory available without swapping.
    pub(crate) available_bytes: Option<u64>,
    pub(crate) swap_bytes: Option<u64>,
    pub(crate) swap_free_bytes: Option<u64>,
    pub(crate) pressure: Option<Pressure>,
    pub(crate) zram: Option<Zram>,
    pub(crate) zswap: Option<Zswap>,
}

/// Share of the last ten seconds, in percent, in which tasks waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pressure {
    pub(crate) some_avg10: f64,
    /// In which all that could run did.
    pub(crate) full_avg10: f64,
}

/// The kernel's zram, all devices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Zram {
    pub(crate) devices: u64,
    pub(crate) stored_pages_bytes: u64,
    pub(crate) memory_bytes: u64,
}

/// The kernel's zswap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Zswap {
    pub(crate) enabled: bool,
    pub(crate) stored_pages_bytes: u64,
    pub(crate) memory_bytes: u64,
}

impl Machine {
    /// Asks the kernel.
    pub(crate) fn now() -> Self {
        Self::below(Path::new("/"))
    }

    /// As the files below `root` say.
    fn below(root: &Path) -> Self {
        let meminfo = read(&root.join("proc/meminfo")).unwrap_or_default();
        let of = |name| bytes(&meminfo, name);
        Self {
            memory_bytes: of("MemTotal:"),
            available_bytes: of("MemAvailable:"),
            swap_bytes: of("SwapTotal:"),
            swap_free_bytes: of("SwapFree:"),
            pressure: read(&root.join("proc/pressure/memory")).and_then(|text| pressure(&text)),
            zram: zram(&root.join("sys/block")),
            zswap: zswap(&root.join("sys/module/zswap/parameters/enabled"), &meminfo),
        }
    }

    /// Returns its figures as short texts, the most important first.
    pub(crate) fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(bytes) = self.memory_bytes {
            parts.push(format!("memory {}", short_size(bytes)));
        }
        if let Some(bytes) = self.available_bytes {
            parts.push(format!("available {}", short_size(bytes)));
        }
        parts.push(match self.pressure {
            Some(Pressure { some_avg10: some, full_avg10: full }) => {
                format!("pressure some {some:.1}% full {full:.1}%")
            }
            None => "pressure not counted".to_owned(),
        });
        if let (Some(all @ 1..), Some(free)) = (self.swap_bytes, self.swap_free_bytes) {
            let used = all.saturating_sub(free);
            parts.push(format!("swap {} of {}", short_size(used), short_size(all)));
        }
        parts.push(match self.zram {
            Some(zram) => packed("zram", zram.stored_pages_bytes, zram.memory_bytes),
            None => "zram none".to_owned(),
        });
        parts.push(match self.zswap {
            Some(zswap) if zswap.enabled || zswap.stored_pages_bytes > 0 => {
                packed("zswap", zswap.stored_pages_bytes, zswap.memory_bytes)
            }
            Some(_) => "zswap off".to_owned(),
            None => "zswap none".to_owned(),
        });
        parts
    }
}

fn packed(name: &str, pages: u64, bytes: u64) -> String {
    format!("{name} {} in {}", short_size(pages), short_size(bytes))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn pressure(text: &str) -> Option<Pressure> {
    let avg10 = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    };
    Some(Pressure { some_avg10: avg10("some ")?, full_avg10: avg10("full ")? })
}

/// Adds up the devices that are set up.
fn zram(blocks: &Path) -> Option<Zram> {
    let mut sum = Zram::default();
    for entry in fs::read_dir(blocks).ok()?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("zram") {
            continue;
        }
        let size = read(&entry.path().join("disksize"));
        if size.is_none_or(|size| size.trim() == "0") {
            continue;
        }
        let stat = read(&entry.path().join("mm_stat")).unwrap_or_default();
        let field = |at| stat.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
        sum.devices += 1;
        sum.stored_pages_bytes += field(0).unwrap_or(0);
        sum.memory_bytes += field(2).unwrap_or(0);
    }
    (sum.devices > 0).then_some(sum)
}

fn zswap(enabled: &Path, meminfo: &str) -> Option<Zswap> {
    let enabled = read(enabled)?.trim() == "Y";
    Some(Zswap {
        enabled,
        stored_pages_bytes: bytes(meminfo, "Zswapped:").unwrap_or(0),
        memory_bytes: bytes(meminfo, "Zswap:").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let root = tempfile::tempdir().expect("a folder");
        let none = Machine::below(root.path());
        assert_eq!(none, Machine::default());
        assert_eq!(none.parts(), ["pressure not counted", "zram none", "zswap none"]);
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        };
        write(
            "proc/meminfo",
            "MemTotal:  1000 kB\nMemAvailable: 400 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n\
             Zswap: 10 kB\nZswapped: 40 kB\n",
        );
        write(
            "proc/pressure/memory",
            "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n\
             full avg10=0.25 avg60=0.00 avg300=0.00 total=3\n",
        );
        write("sys/block/zram0/disksize", "1048576\n");
        write("sys/block/zram0/mm_stat", "  8192  1000  4096 0 4096 0 0 0 0\n");
        write("sys/block/zram1/disksize", "0\n");
        write("sys/block/sda/disksize", "1\n");
        write("sys/module/zswap/parameters/enabled", "Y\n");
        let machine = Machine::below(root.path());
        assert_eq!(
            (machine.memory_bytes, machine.available_bytes),
            (Some(1000 << 10), Some(400 << 10))
        );
        assert_eq!(machine.pressure, Some(Pressure { some_avg10: 1.5, full_avg10: 0.25 }));
        let zram = Zram { devices: 1, stored_pages_bytes: 8192, memory_bytes: 4096 };
        assert_eq!(machine.zram, Some(zram));
        let zswap = Zswap { enabled: true, stored_pages_bytes: 40 << 10, memory_bytes: 10 << 10 };
        assert_eq!(machine.zswap, Some(zswap));
        assert_eq!(
            machine.parts().join(", "),
            "memory 0.98M, available 400K, pressure some 1.5% full 0.2%, zram 8.00K in 4.00K, \
             zswap 40.0K in 10.0K"
        );
    }
}
