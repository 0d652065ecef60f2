//! The metrics of a guest server.

use zfold_figures::Kind;
use zfold_guest::GuestState;

use super::report::{GuestsReport, ImageReport};
use crate::control::metrics::Text;

/// A metric that is no figure: its name, what it is, and where it is found.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

/// What is stored, and who is there.
const NOW: [Metric<GuestsReport>; 10] = [
    ("guests", "guests served or held now", |of| of.guests.len() as u64),
    ("guests_waiting", "of these, guests with a fault that has waited for five seconds", |of| {
        of.guests.iter().filter(|guest| guest.stats.late).count() as u64
    }),
    ("guests_held_now", "of these, guests that do not fit their image, and wait", |of| {
        of.guests.iter().filter(|guest| guest.stats.state == GuestState::Held).count() as u64
    }),
    ("guest_machines_on_demand", "machines that get their pages now", |of| of.on_demand),
    ("guest_stored_bytes", "bytes of images that are not zeros", |of| of.stored_pages_bytes),
    ("guest_compressed_bytes", "their compressed size, equal pages counted once", |of| {
        of.payload_bytes
    }),
    ("guest_memory_bytes", "all memory that images take, tables included", |of| of.held_bytes),
    ("guest_memory_limit_bytes", "the most memory that images may take; 0: no limit", |of| {
        of.limit_bytes
    }),
    ("guest_backing_bytes", "bytes of the backing file in use", |of| of.backing_bytes),
    ("guest_duplicate_pages", "pages that share another one's bytes", |of| of.duplicate_pages),
];

/// What each image is and costs.
const IMAGES: [Metric<ImageReport>; 4] = [
    ("guest_image_size_bytes", "size of an image", |of| of.info.size_bytes),
    ("guest_image_own_pages", "pages of an image that differ from its base", |of| {
        of.info.own_pages
    }),
    ("guest_image_working_set_pages", "pages of its working set", |of| of.info.working_set_pages),
    ("guest_image_guests", "guests of an image", |of| of.guests),
];

const TAKEOVERS: &str = "guest_takeovers_total";

/// Returns the metrics as text. Totals but for that of servers begin anew with each server.
pub(super) fn text(report: &GuestsReport) -> String {
    let mut text = Text::new(&report.version);
    for (name, help, of) in NOW {
        text.begin(name, Kind::Gauge, help);
        text.value(name, of(report));
    }
    text.begin(TAKEOVERS, Kind::Counter, "servers that were lost and replaced");
    text.value(TAKEOVERS, report.takeovers_total);
    text.figures(&report.served);
    text.figures(&report.given);
    for (name, help, of) in IMAGES {
        text.begin(name, Kind::Gauge, help);
        report.images.iter().for_each(|image| {
            text.value_of(name, ("image", &image.info.name), of(image));
        });
    }
    text.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::metrics::tests::names;

    #[test]
    fn names_are_distinct_and_counters_end_in_total() {
        let mut image = ImageReport::default();
        image.info.name = "web".to_owned();
        let images = vec![image];
        let text = text(&GuestsReport { images, ..GuestsReport::default() });
        let names = names(&text);
        for name in &names {
            assert!(text.contains(&format!("\nzfold_{name}")), "{name} has no value");
        }
        assert_eq!(names.len(), 1 + NOW.len() + 1 + 5 + 7 + IMAGES.len());
        assert!(text.contains("\nzfold_guest_image_guests{image=\"web\"} 0\n"), "{text}");
    }
}
