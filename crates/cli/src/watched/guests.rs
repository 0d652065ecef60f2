//! Guest servers, with their rates between two looks.

use std::path::PathBuf;

use serde::Serialize;
use zfold_guest::{Given, Served};

use super::look::{Answer, Look};
use super::rates::{Rates, Since, rates, ratio};
use crate::guest::report::GuestsReport;
use crate::shared::figures::in_state;

/// A guest server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Guests {
    pub(crate) pid: u32,
    pub(crate) images: u64,
    pub(crate) guests: u64,
    /// Guests that wait for a page that cannot be had.
    pub(crate) late: u64,
    /// 0: none.
    pub(crate) limit_bytes: u64,
    /// All memory that images take.
    pub(crate) resident_bytes: u64,
    /// Pages of images, as guests see them.
    pub(crate) stored_pages_bytes: u64,
    pub(crate) ratio: Option<f64>,
    #[serde(flatten, with = "in_state")]
    pub(crate) served: Served,
    #[serde(flatten, with = "in_state")]
    pub(crate) given: Given,
    #[serde(flatten)]
    pub(crate) rates: Rates<Given>,
    #[serde(skip)]
    pub(crate) socket: PathBuf,
}

impl Guests {
    /// Returns what it serves, in a line.
    pub(crate) fn what(&self) -> String {
        let images = if self.images == 1 { "image" } else { "images" };
        let late = match self.late {
            0 => String::new(),
            late => format!(" ({late} wait)"),
        };
        format!("guests: {} of {} {images}{late}", self.guests, self.images)
    }
}

/// Returns all guest servers, with their rates since an earlier look.
pub(crate) fn guests(now: &Look, before: &Look) -> Vec<Guests> {
    let of = |said: &Answer<GuestsReport>| {
        // A server that took over counts from 0.
        let is_same = |server: &&Answer<GuestsReport>| {
            (server.what.pid, server.what.server_pid) == (said.what.pid, said.what.server_pid)
        };
        let earlier = before.guests.iter().find(is_same);
        let since = earlier.and_then(|before| Since::new(&before.what, before.at, said.at));
        let report = &said.what;
        Guests {
            pid: report.pid,
            images: report.images.len() as u64,
            guests: report.guests.len() as u64,
            late: report.guests.iter().filter(|guest| guest.late).count() as u64,
            limit_bytes: report.limit_bytes,
            resident_bytes: report.held_bytes,
            stored_pages_bytes: report.stored_pages_bytes,
            ratio: ratio(report.stored_pages_bytes, report.held_bytes),
            served: report.served,
            given: report.given,
            rates: rates(since, &report.given, |before| &before.given),
            socket: said.socket.clone(),
        }
    };
    now.guests.iter().map(of).collect()
}
