//! What a guest server has, as it is sent and shown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use zfold_figures::Doc;
use zfold_guest::{Given, GuestState, GuestStats, ImageInfo, Served, TABLE};

use crate::shared::clean::clean;
use crate::shared::figures::{all_of, in_state};
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
    #[serde(flatten)]
    pub(crate) info: ImageInfo,
    pub(crate) guests: u64,
    /// Where guests connect; empty for a machine, which is sent.
    pub(crate) socket: String,
}

/// A guest.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct GuestReport {
    #[serde(flatten)]
    pub(crate) stats: GuestStats,
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
        rows.extend(self.images.iter().map(|ImageReport { info: image, guests, socket }| {
            let recorded = if image.recorded { " (recorded)" } else { "" };
            let (kind, socket) = match image.machine_bytes {
                Some(_) => ("machine", "-".to_owned()),
                None => ("memory", clean(socket)),
            };
            [
                clean(&image.name),
                kind.to_owned(),
                size(image.size_bytes).trim_end().to_owned(),
                count(image.own_pages),
                format!("{}{recorded}", count(image.working_set_pages)),
                guests.to_string(),
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

impl GuestReport {
    pub(super) fn of(stats: GuestStats) -> Self {
        Self { given: stats.given, stats }
    }

    fn row(&self) -> [String; 9] {
        let GuestStats { number, image, pid, state, late, pages_left, .. } = &self.stats;
        let waits = if *late { " (waits)" } else { "" };
        let state = match state {
            GuestState::Held => "held",
            GuestState::Released => "released",
            _ => "served",
        };
        [
            number.to_string(),
            clean(image),
            pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format!("{state}{waits}"),
            count(*pages_left),
            count(self.given.faults_total),
            count(self.given.copied_pages_total),
            count(self.given.zero_pages_total),
            count(self.given.discards_total),
        ]
    }
}
