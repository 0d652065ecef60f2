//! Figures of the machine and of one run or disk, as short texts.

use zfold_figures::{Doc, Figure, Unit};
use zfold_run::Figures;
use zfold_run::figures::table::{MEMORY, STAYS, TOUCHED, WORK};

use crate::shared::far::FarReport;
use crate::shared::figures;
use crate::shared::table::{count, short_rate, short_size, time};
use crate::watched::guests::Guests;
use crate::watched::machine::Machine;
use crate::watched::rates::{Disk, Run};
use crate::watched::subject::Subject;

/// Returns the figures of the machine, the most important first.
pub(super) fn of_machine(machine: &Machine) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(bytes) = machine.memory_bytes {
        told.push(format!("memory {}", short_size(bytes)));
    }
    if let Some(bytes) = machine.available_bytes {
        told.push(format!("available {}", short_size(bytes)));
    }
    told.push(match machine.pressure {
        Some(pressure) => {
            format!("pressure some {:.1}% full {:.1}%", pressure.some_avg10, pressure.full_avg10)
        }
        None => "pressure not counted".to_owned(),
    });
    if let (Some(all @ 1..), Some(free)) = (machine.swap_bytes, machine.swap_free_bytes) {
        let used = all.saturating_sub(free);
        told.push(format!("swap {} of {}", short_size(used), short_size(all)));
    }
    told.push(match machine.zram {
        Some(zram) => packed("zram", zram.stored_pages_bytes, zram.memory_bytes),
        None => "zram none".to_owned(),
    });
    told.push(match machine.zswap {
        Some(zswap) if zswap.enabled || zswap.stored_pages_bytes > 0 => {
            packed("zswap", zswap.stored_pages_bytes, zswap.memory_bytes)
        }
        Some(_) => "zswap off".to_owned(),
        None => "zswap none".to_owned(),
    });
    told
}

fn packed(name: &str, pages: u64, bytes: u64) -> String {
    format!("{name} {} in {}", short_size(pages), short_size(bytes))
}

/// Returns all figures of one: names and values.
pub(super) fn of_subject(one: &Subject) -> Vec<(&'static str, String)> {
    let (mut figures, far) = match one {
        Subject::Run(run) => (of_run(run), run.state.far.as_deref()),
        Subject::Disk(disk) => (of_disk(disk), disk.far.as_deref()),
        Subject::Guests(guests) => (of_guests(guests), None),
    };
    figures.extend(far.map(of_far).into_iter().flatten());
    figures
}

/// Returns the figures of other machines.
fn of_far(far: &FarReport) -> Vec<(&'static str, String)> {
    let times = |calls, p50: u64, p99: u64| match calls {
        0 => quantiles(None, None),
        _ => quantiles(Some(p50.saturating_mul(1000)), Some(p99.saturating_mul(1000))),
    };
    let of = &far.stats;
    vec![
        ("far", far.state().to_owned()),
        ("  bytes", short_size(of.object_bytes)),
        ("  get p50, p99", times(of.gets_total, of.get_us_p50, of.get_us_p99)),
        ("  put p50, p99", times(of.puts_total, of.put_us_p50, of.put_us_p99)),
        ("  retries", count(of.retries_total)),
        ("  failures", count(of.failures_total)),
    ]
}

fn of_run(run: &Run) -> Vec<(&'static str, String)> {
    let (state, held) = (&run.state, &run.state.figures);
    let mut figures = rows_of(run, MEMORY);
    figures.push(("  ratio", ratio(run.ratio)));
    figures.push(("  codec", state.codec.clone()));
    figures.push(("backing file", backing(held.backing_bytes, held.backing_used_bytes)));
    let recent = quantiles(run.recent_fault_p50_ns, run.recent_fault_p99_ns);
    figures.push(("p50, p99 now", recent));
    figures.extend(rows_of(run, WORK));
    figures.extend(rows_of(run, STAYS));
    if let Some(touched) = &state.touched {
        let rows = figures::in_table(Doc::State, TOUCHED);
        figures.push(("touched", String::new()));
        figures
            .extend(rows.map(|(field, figure)| (field.label, short_size((figure.of)(&touched.0)))));
    }
    figures
}

/// Returns the figures of a table of a run's state, with the rates of those that have one.
fn rows_of(run: &Run, table: &str) -> Vec<(&'static str, String)> {
    let told = |figure: &Figure<Figures>| {
        let value = (figure.of)(&run.state.figures);
        match figure.unit {
            Unit::Bytes => short_size(value),
            Unit::Count if figure.has_rate() => total(value, run.rates.of(figure.of)),
            Unit::Count | Unit::Pages => count(value),
            // Before the first fault there is no time of one.
            _ if value == 0 => "-".to_owned(),
            unit => figures::formatted(unit, value).trim_end().to_owned(),
        }
    };
    figures::in_table(Doc::State, table)
        .map(|(field, figure)| (field.label, told(figure)))
        .collect()
}

fn of_guests(guests: &Guests) -> Vec<(&'static str, String)> {
    let (served, given) = (&guests.served, &guests.given);
    let limit = match guests.limit_bytes {
        0 => "none".to_owned(),
        limit => short_size(limit),
    };
    vec![
        ("images", count(guests.images)),
        ("  stored", short_size(guests.stored_pages_bytes)),
        ("  memory", short_size(guests.resident_bytes)),
        ("  ratio", ratio(guests.ratio)),
        ("  limit", limit),
        ("guests", count(guests.guests)),
        ("  waiting", count(guests.late)),
        ("faults", total(given.faults_total, guests.rates.of(|guests| guests.faults_total))),
        (
            "  p50, p99 ever",
            match given.faults_total {
                0 => quantiles(None, None),
                _ => quantiles(Some(served.fault_p50_ns), Some(served.fault_p99_ns)),
            },
        ),
        ("pages copied", count(given.copied_pages_total)),
        ("  zeros", count(given.zero_pages_total)),
        ("  beforehand", count(given.beforehand_pages_total)),
    ]
}

fn of_disk(disk: &Disk) -> Vec<(&'static str, String)> {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), per_second);
    let bytes = |rate: Option<f64>| match rate {
        Some(rate) => format!("{}/s", short_size(rate as u64)),
        None => "-".to_owned(),
    };
    let limit = disk.limit_bytes;
    vec![
        ("limit", if limit == 0 { "none".to_owned() } else { short_size(limit) }),
        ("memory", short_size(disk.resident_bytes)),
        ("stored", short_size(disk.stored_pages_bytes)),
        ("  ratio", ratio(disk.ratio)),
        ("backing file", backing(disk.backing_bytes, disk.backing_used_bytes)),
        ("pages read", rate(disk.kept.of(|disk| disk.backing_reads_total))),
        ("pages written", rate(disk.kept.of(|disk| disk.backing_writes_total))),
        ("reads", rate(disk.served.of(|disk| disk.reads_total))),
        ("read", bytes(disk.served.of(|disk| disk.read_bytes_total))),
        ("writes", rate(disk.served.of(|disk| disk.writes_total))),
        ("written", bytes(disk.served.of(|disk| disk.written_bytes_total))),
    ]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn backing(size: u64, used: u64) -> String {
    match size {
        0 => "none".to_owned(),
        _ => format!("{} of {}", short_size(used), short_size(size)),
    }
}

fn total(total: u64, rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{}, {}", count(total), per_second(rate)),
        None => count(total),
    }
}

fn per_second(rate: f64) -> String {
    format!("{}/s", short_rate(rate))
}

fn quantiles(p50: Option<u64>, p99: Option<u64>) -> String {
    let shown =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| time(ns).trim_end().to_owned());
    format!("{}, {}", shown(p50), shown(p99))
}

#[cfg(test)]
mod tests {
    use zfold_disk::DiskStats;

    use super::*;
    use crate::watched::machine::{Pressure, Zram, Zswap};
    use crate::watched::rates::Rates;

    #[test]
    fn the_machine_is_told_in_short_parts() {
        assert_eq!(
            of_machine(&Machine::default()),
            ["pressure not counted", "zram none", "zswap none"]
        );
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            available_bytes: Some(2 << 30),
            swap_bytes: Some(1 << 30),
            swap_free_bytes: Some(1 << 29),
            pressure: Some(Pressure { some_avg10: 1.25, full_avg10: 0.0 }),
            zram: Some(Zram { devices: 1, stored_pages_bytes: 4 << 20, memory_bytes: 1 << 20 }),
            zswap: Some(Zswap { enabled: false, stored_pages_bytes: 0, memory_bytes: 0 }),
        };
        assert_eq!(
            of_machine(&machine).join(", "),
            "memory 8.00G, available 2.00G, pressure some 1.2% full 0.0%, swap 512M of 1.00G, \
             zram 4.00M in 1.00M, zswap off"
        );
    }

    #[test]
    fn one_has_its_sums_and_rates() {
        let grown = Figures { faults_total: 12, ..Figures::default() };
        let run = Run { rates: Rates::new(grown, 1.0), ..Run::default() };
        let figures = of_subject(&Subject::Run(Box::new(run)));
        assert!(figures.contains(&("faults", "0, 12/s".to_owned())), "{figures:?}");
        assert!(figures.contains(&("p50, p99 now", "-, -".to_owned())), "{figures:?}");
        let mut grown = DiskStats::default();
        grown.reads_total = 3;
        let served = Rates::new(grown, 1.0);
        let disk = Disk { served, ..Disk::default() };
        let figures = of_subject(&Subject::Disk(Box::new(disk)));
        assert!(figures.contains(&("reads", "3/s".to_owned())), "{figures:?}");
        assert!(!figures.iter().any(|figure| figure.0 == "far"), "{figures:?}");
    }

    #[test]
    fn other_machines_are_told_of_where_pages_go_there() {
        let mut far = FarReport { away: true, ..FarReport::default() };
        far.stats.object_bytes = 3 << 20;
        far.stats.gets_total = 7;
        far.stats.get_us_p50 = 120;
        far.stats.get_us_p99 = 2500;
        let disk = Disk { far: Some(Box::new(far)), ..Disk::default() };
        let figures = of_subject(&Subject::Disk(Box::new(disk)));
        for (name, value) in [
            ("far", "does not answer"),
            ("  bytes", "3.00M"),
            ("  get p50, p99", "120 us, 2.50 ms"),
            ("  put p50, p99", "-, -"),
        ] {
            assert!(figures.contains(&(name, value.to_owned())), "{name}: {figures:?}");
        }
    }
}
