//! What a guest server has, as it is sent and shown.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zfold_figures::Doc;
use zfold_guest::{Given, GuestState, GuestStats, ImageInfo, Served, TABLE};

use crate::shared::clean::clean;
use crate::shared::figures::{all_of, in_state};
use crate::shared::size::PAGE_LEN;
use crate::shared::table::{columns, count, size, table};

/// Name of this form of the statistics; another one has another name.
pub(crate) const SCHEMA: &str = "zfold.guests/1";

/// The statistics of a server. Totals only grow.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct GuestsReport {
    pub(crate) schema: String,
    pub(crate) version: String,
    /// The process that was started, and that signals end.
    pub(crate) pid: u32,
    /// The one that serves now.
    #[serde(default)]
    pub(crate) server_pid: u32,
    /// Times that another one took over.
    #[serde(default)]
    pub(crate) takeovers_total: u64,
    pub(crate) uptime_seconds: u64,
    pub(crate) codec: String,
    /// 0: none.
    pub(crate) limit_bytes: u64,
    /// Machines that get their pages on demand.
    #[serde(default)]
    pub(crate) on_demand: u64,
    /// All memory that images take.
    pub(crate) held_bytes: u64,
    /// Of that, compressed pages.
    pub(crate) payload_bytes: u64,
    /// Pages that are stored, as guests see them.
    pub(crate) stored_pages_bytes: u64,
    /// Pages that share the bytes of another one.
    pub(crate) duplicate_pages: u64,
    /// Bytes of the backing file in use, and pages that lie there.
    #[serde(default)]
    pub(crate) backing_bytes: u64,
    #[serde(default)]
    pub(crate) backed_pages: u64,
    pub(crate) images: Vec<ImageReport>,
    #[serde(flatten, with = "in_state")]
    pub(crate) served: Served,
    #[serde(flatten, with = "in_state")]
    pub(crate) given: Given,
    pub(crate) guests: Vec<GuestReport>,
}

/// An image.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ImageReport {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) own_pages: u64,
    pub(crate) working_set_pages: u64,
    pub(crate) recorded: bool,
    pub(crate) guests: u64,
    /// Of a machine, bytes of its configuration and state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_bytes: Option<u64>,
    /// Of the state file that is kept with it: bytes, and XXH3 of 64 bits in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_xxh3: Option<String>,
    /// Where guests connect; empty for a machine, which is sent.
    pub(crate) socket: String,
}

/// A guest.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct GuestReport {
    pub(crate) number: u64,
    pub(crate) image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<i32>,
    pub(crate) age_seconds: u64,
    /// `served`, or `held` if its regions were refused.
    pub(crate) state: String,
    /// A fault has waited for long.
    pub(crate) late: bool,
    pub(crate) pages: u64,
    pub(crate) pages_left: u64,
    #[serde(flatten, with = "in_state")]
    pub(crate) given: Given,
}

impl GuestsReport {
    /// Returns the images as text for people.
    pub(super) fn image_text(&self) -> String {
        if self.images.is_empty() {
            return "no images: zfold guest import NAME FILE\n".to_owned();
        }
        let titles = [
            "IMAGE",
            "KIND",
            "SIZE",
            "OWN PAGES",
            "WORKING SET",
            "GUESTS",
            "BASE",
            "STATE",
            "SOCKET",
        ];
        let mut rows = vec![titles.map(str::to_owned)];
        rows.extend(self.images.iter().map(|image| {
            let recorded = if image.recorded { " (recorded)" } else { "" };
            let (kind, socket) = match image.machine_bytes {
                Some(_) => ("machine", "-".to_owned()),
                None => ("memory", clean(&image.socket)),
            };
            [
                clean(&image.name),
                kind.to_owned(),
                size(image.size_bytes).trim_end().to_owned(),
                count(image.own_pages),
                format!("{}{recorded}", count(image.working_set_pages)),
                image.guests.to_string(),
                image.base.as_deref().map_or_else(|| "-".to_owned(), clean),
                image.state_xxh3.as_deref().map_or_else(|| "-".to_owned(), clean),
                socket,
            ]
        }));
        columns(&rows, |_| false)
    }

    /// Returns all for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let limit = if self.limit_bytes == 0 { "none".to_owned() } else { size(self.limit_bytes) };
        let rows = [
            ("stored", size(self.stored_pages_bytes), "pages of images that are not zeros"),
            (
                "compressed",
                size(self.payload_bytes),
                "compressed size of these, equal pages counted once",
            ),
            ("held", size(self.held_bytes), "all memory that this takes"),
            ("limit", limit, ""),
            ("duplicates", count(self.duplicate_pages), "pages that share another one's bytes"),
            ("in the file", size(self.backing_bytes), "of the backing file in use"),
        ];
        table(&mut text, "images", &rows);
        let mut rows = vec![("guests", self.guests.len().to_string(), "now")];
        if self.on_demand > 0 {
            rows.push(("on demand", count(self.on_demand), "machines that get their pages now"));
        }
        rows.extend(all_of(TABLE, Doc::State, &self.served));
        rows.extend(all_of(TABLE, Doc::State, &self.given));
        table(&mut text, TABLE, &rows);
        if !self.guests.is_empty() {
            let titles =
                ["GUEST", "IMAGE", "PID", "STATE", "LEFT", "FAULTS", "COPIED", "ZEROS", "DISCARDS"];
            let mut rows = vec![titles.map(str::to_owned)];
            rows.extend(self.guests.iter().map(GuestReport::row));
            text.push_str(&columns(&rows, |_| false));
            text.push('\n');
        }
        let (version, pid, up) = (clean(&self.version), self.pid, self.uptime_seconds);
        // Writing to a string does not fail.
        let _ = writeln!(text, "zfold {version}, process {pid}, up {up} s");
        let (server, before) = (self.server_pid, self.takeovers_total);
        let _ = writeln!(text, "served by process {server}, after {before} that were lost");
        text
    }
}

impl ImageReport {
    /// Returns what is told of an image with this socket, if it has one.
    pub(super) fn of(info: ImageInfo, guests: &[GuestReport], socket: Option<&PathBuf>) -> Self {
        Self {
            size_bytes: info.pages * PAGE_LEN,
            own_pages: info.own_pages,
            working_set_pages: info.working_set_pages,
            recorded: info.recorded,
            machine_bytes: info.machine_bytes,
            state_bytes: info.state.map(|state| state.bytes),
            state_xxh3: info.state.map(|state| format!("{:016x}", state.hash)),
            guests: guests.iter().filter(|guest| guest.image == info.name).count() as u64,
            socket: socket.map_or_else(String::new, |at| at.display().to_string()),
            base: info.base,
            name: info.name,
        }
    }
}

impl GuestReport {
    pub(super) fn of(stats: &GuestStats) -> Self {
        let state = match stats.state {
            GuestState::Held => "held",
            GuestState::Released => "released",
            _ => "served",
        };
        Self {
            number: stats.number,
            image: stats.image.clone(),
            pid: stats.pid,
            age_seconds: stats.age.as_secs(),
            state: state.to_owned(),
            late: stats.is_late,
            pages: stats.pages,
            pages_left: stats.pages_left,
            given: stats.given,
        }
    }

    fn row(&self) -> [String; 9] {
        let waits = if self.late { " (waits)" } else { "" };
        [
            self.number.to_string(),
            clean(&self.image),
            self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format!("{}{waits}", clean(&self.state)),
            count(self.pages_left),
            count(self.given.faults_total),
            count(self.given.copied_pages_total),
            count(self.given.zero_pages_total),
            count(self.given.discards_total),
        ]
    }
}
