//! The machine that figures are of; what cannot be found out is `unknown`.

use std::fmt;
use std::fs;

use serde::Serialize;
use zfold_compare::proc::bytes;

const UNKNOWN: &str = "unknown";

/// The properties of the machine on which figures depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Model of the processors.
    pub cpu_model: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory of the system in bytes.
    pub memory_bytes: Option<u64>,
    /// Distribution of the system.
    pub os: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of zfold.
    pub zfold_version: &'static str,
}

impl Machine {
    /// Returns this machine.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let known = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
        Self {
            cpu_model: known(cpu_model(&read("/proc/cpuinfo"))),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: bytes(&read("/proc/meminfo"), "MemTotal:"),
            os: known(value(&read("/etc/os-release"), '=', "PRETTY_NAME")),
            kernel: known(
                Some(read("/proc/sys/kernel/osrelease").trim()).filter(|s| !s.is_empty()),
            ),
            zfold_version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu_model, cpus, memory_bytes, os, kernel, zfold_version } = self;
        let plural = if *cpus == 1 { "" } else { "s" };
        write!(f, "{cpu_model}, {cpus} CPU{plural}, ")?;
        match memory_bytes {
            Some(bytes) => write!(f, "{:.1} GiB", *bytes as f64 / f64::from(1 << 30))?,
            None => write!(f, "memory {UNKNOWN}")?,
        }
        write!(f, ", {os}, kernel {kernel}, zfold {zfold_version}")
    }
}

/// Returns the model in `/proc/cpuinfo`, which each architecture names in its own way.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let names = ["model name", "Model", "Hardware", "cpu model", "cpu"];
    names.into_iter().find_map(|name| value(cpuinfo, ':', name))
}

/// Returns what stands behind `name` and `separator` in the first such line, without quotes.
fn value<'a>(text: &'a str, separator: char, name: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.split_once(separator).filter(|(key, _)| key.trim() == name);
    let (_, value) = text.lines().find_map(line)?;
    Some(value.trim().trim_matches('"')).filter(|value| !value.is_empty())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a machine that is the same wherever tests run.
    pub(crate) fn machine() -> Machine {
        Machine {
            cpu_model: "Some CPU <4 GHz>".to_owned(),
            cpus: 2,
            memory_bytes: Some(8 << 30),
            os: "Some Linux 1".to_owned(),
            kernel: "6.18.0".to_owned(),
            zfold_version: "0.1.0",
        }
    }

    #[test]
    fn machine_is_one_line() {
        let line = "Some CPU <4 GHz>, 2 CPUs, 8.0 GiB, Some Linux 1, kernel 6.18.0, zfold 0.1.0";
        assert_eq!(machine().to_string(), line);
        let poor = Machine { cpus: 1, memory_bytes: None, ..machine() };
        assert!(poor.to_string().contains(", 1 CPU, memory unknown, "), "{poor}");
    }

    #[test]
    fn models_of_other_architectures_are_found() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A 7\nmodel name\t: B\n"), Some("A 7"));
        assert_eq!(
            cpu_model("processor\t: 0\n\nModel\t\t: Raspberry Pi 4\n"),
            Some("Raspberry Pi 4")
        );
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t:\n"), None);
    }
}
