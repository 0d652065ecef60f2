//! Runs, disks and guest servers as rows of one table.

use super::seen::{Disk, Guests, Run, Seen};
use crate::shared::clean::clean;
use crate::shared::table::{short_rate, short_size, time};

/// A run, a disk or a guest server; figures that it does not have are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// It is the same at the next look.
    pub(crate) pid: u32,
    /// The command of a run, which disk it is, or what guests there are, in one clean line.
    pub(crate) name: String,
    pub(crate) limit: Option<u64>,
    /// What counts against the limit.
    pub(crate) resident: u64,
    /// The pages that are stored.
    pub(crate) stored: u64,
    pub(crate) ratio: Option<f64>,
    faults: Option<f64>,
    fault_p50: Option<u64>,
    fault_p99: Option<u64>,
    /// Pages that were loaded again before they were compressed.
    refaults: Option<f64>,
    /// Pages that left: a process, or the memory of a disk.
    evictions: Option<f64>,
    /// Bytes in use on the backing file.
    backing: Option<u64>,
    requests: Option<f64>,
    touched: Option<u64>,
    stays: Option<u64>,
}

/// Returns all as rows.
pub(crate) fn rows(seen: &Seen) -> Vec<Row> {
    let disks = seen.disks.iter().map(Row::of_disk);
    let guests = seen.guests.iter().map(Row::of_guests);
    seen.runs.iter().map(Row::of_run).chain(disks).chain(guests).collect()
}

/// Returns a number of bytes, where 0 means that there are none.
fn some(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

impl Row {
    fn of_run(run: &Run) -> Self {
        let (state, held) = (&run.state, &run.state.figures);
        Self {
            pid: state.pid,
            name: clean(&state.command),
            limit: Some(held.limit_bytes),
            resident: held.resident_bytes,
            stored: held.stored_pages_bytes,
            ratio: run.ratio,
            faults: run.rates.of(|run| run.faults_total),
            fault_p50: run.recent_fault_p50_ns,
            fault_p99: run.recent_fault_p99_ns,
            refaults: run.rates.of(|run| run.refaults_total),
            evictions: run.rates.of(|run| run.evictions_total),
            backing: some(held.backing_bytes).map(|_| held.backing_used_bytes),
            requests: None,
            touched: state.touched.map(|touched| touched.0.touched_1min_bytes),
            stays: Some(state.stays()),
        }
    }

    fn of_disk(disk: &Disk) -> Self {
        Self {
            pid: disk.pid,
            name: clean(&format!("disk {}", disk.name)),
            limit: some(disk.limit_bytes),
            resident: disk.resident_bytes,
            stored: disk.stored_pages_bytes,
            ratio: disk.ratio,
            evictions: disk.kept.of(|disk| disk.backing_writes_total),
            backing: some(disk.backing_bytes).map(|_| disk.backing_used_bytes),
            requests: disk.served.of(|disk| disk.reads_total + disk.writes_total),
            ..Self::default()
        }
    }

    fn of_guests(server: &Guests) -> Self {
        let images = if server.images == 1 { "image" } else { "images" };
        let late = some(server.late).map(|late| format!(" ({late} wait)")).unwrap_or_default();
        Self {
            pid: server.pid,
            name: format!("guests: {} of {} {images}{late}", server.guests, server.images),
            limit: some(server.limit_bytes),
            resident: server.resident_bytes,
            stored: server.stored_pages_bytes,
            ratio: server.ratio,
            faults: server.rates.of(|server| server.faults_total),
            ..Self::default()
        }
    }
}

/// A column; the name comes behind all of them.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Those of the least numbers stay where there is little room.
    rank: u8,
    /// A value of a row, by which rows are ordered; none if there is none of this row.
    value: fn(&Row) -> Option<f64>,
    shown: fn(f64) -> String,
}

/// All of them, from left to right.
pub(crate) static COLUMNS: [Column; 14] = [
    column("PID", 7, 0, |one| Some(f64::from(one.pid)), |pid| format!("{pid:.0}")),
    column("LIMIT", 6, 2, |one| float(one.limit).or(Some(f64::INFINITY)), limit),
    column("RES", 6, 1, |one| float(Some(one.resident)), bytes),
    column("STORED", 6, 4, |one| float(Some(one.stored)), bytes),
    column("RATIO", 5, 3, |one| one.ratio, |ratio| format!("{ratio:.2}")),
    column("FAULT/S", 7, 5, |one| one.faults, short_rate),
    column("P50", 7, 7, |one| float(one.fault_p50), short_time),
    column("P99", 7, 6, |one| float(one.fault_p99), short_time),
    column("REFLT/S", 7, 8, |one| one.refaults, short_rate),
    column("EVICT/S", 7, 9, |one| one.evictions, short_rate),
    column("BACKING", 7, 10, |one| float(one.backing), bytes),
    column("REQ/S", 7, 11, |one| one.requests, short_rate),
    column("TOUCHED", 7, 12, |one| float(one.touched), bytes),
    column("STAYS", 6, 13, |one| float(one.stays), bytes),
];

const fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    value: fn(&Row) -> Option<f64>,
    shown: fn(f64) -> String,
) -> Column {
    Column { title, width, rank, value, shown }
}

impl Column {
    /// Returns what rows are ordered by.
    pub(crate) fn order(&self, one: &Row) -> f64 {
        (self.value)(one).unwrap_or(0.0)
    }
}

fn limit(bytes: f64) -> String {
    if bytes.is_infinite() { "none".to_owned() } else { short_size(bytes as u64) }
}

fn float(number: Option<u64>) -> Option<f64> {
    number.map(|number| number as f64)
}

fn bytes(bytes: f64) -> String {
    short_size(bytes as u64)
}

fn short_time(nanoseconds: f64) -> String {
    time(nanoseconds as u64).replace(' ', "")
}

/// Most room that is kept for the name.
const NAME: usize = 20;

/// Returns the columns that fit a line of this width, with room for the name.
pub(crate) fn fitting(width: usize) -> Vec<&'static Column> {
    let mut by_rank: Vec<_> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut used = (width / 5).min(NAME);
    let fits = |column: &&Column| {
        used += column.width + 1;
        used <= width
    };
    let ranks: Vec<u8> = by_rank.into_iter().take_while(fits).map(|column| column.rank).collect();
    COLUMNS.iter().filter(|column| ranks.contains(&column.rank)).collect()
}

/// Returns a row as a line.
pub(crate) fn line(columns: &[&Column], one: &Row) -> String {
    let cell = |column: &&Column| {
        let cell = (column.value)(one).map_or_else(|| "-".to_owned(), column.shown);
        format!("{cell:>0$} ", column.width)
    };
    columns.iter().map(cell).collect::<String>() + &one.name
}

/// What is shown in place of rows where there are none.
pub(crate) const NOTHING: &str = "no runs, disks or guests of this user";

/// Returns all as lines under their titles: the columns that fit this width.
pub(crate) fn table(rows: &[Row], width: usize) -> String {
    if rows.is_empty() {
        return format!("{NOTHING}\n");
    }
    let columns = fitting(width);
    let title = |column: &&Column| format!("{:>1$} ", column.title, column.width);
    let mut text = columns.iter().map(title).collect::<String>() + "COMMAND\n";
    for one in rows {
        text += &(line(&columns, one) + "\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use zfold_run::Figures;

    use super::*;
    use crate::control::state::RunState;
    use crate::watched::rates::Rates;

    #[test]
    fn all_stand_in_columns() {
        let figures =
            Figures { limit_bytes: 64 << 20, stored_pages_bytes: 4 << 20, ..Figures::default() };
        let state = RunState {
            pid: 7,
            command: "sort\n\x1b[2Jx".to_owned(),
            figures: Figures { faults_total: 20, ..figures },
            ..RunState::default()
        };
        let rates = Rates::new(&state.figures, Some(&figures), 2.0);
        let run = Run { state, ratio: Some(4.0), rates, ..Run::default() };
        let disk = Disk { pid: 12, name: "a".to_owned(), ..Disk::default() };
        let guests = Guests { pid: 13, images: 1, late: 2, ..Guests::default() };
        let seen = Seen { runs: vec![run], disks: vec![disk], guests: vec![guests] };
        let text = table(&rows(&seen), usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("      7  64.0M     0B  4.00M  4.00      10 "), "{text}");
        assert!(lines[1].ends_with("     0B sort\\n\\u{1b}[2Jx"), "{text}");
        assert!(lines[2].starts_with("     12   none "), "{text}");
        assert!(lines[2].ends_with("      - disk a"), "{text}");
        assert!(lines[3].ends_with("- guests: 0 of 1 image (2 wait)"), "{text}");
        let narrow = table(&rows(&seen), 20);
        assert!(narrow.starts_with("    PID    RES COMMAND\n"), "{narrow}");
        assert_eq!(table(&[], 80), "no runs, disks or guests of this user\n");
    }
}
