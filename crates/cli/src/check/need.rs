//! Something that zfold needs of this system, found or missing.

use serde::Serialize;

/// The product that needs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Use {
    /// `zfold run`.
    Run,
    /// A `Region` of the library.
    Region,
    /// A region whose faults threads serve.
    Threads,
    /// `zfold disk --fuse`.
    Fuse,
    /// A disk on which this system itself swaps or mounts a file system.
    Lock,
    /// A VMM whose guests `zfold guest` restores.
    Guest,
}

impl Use {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Region => "Region",
            Self::Threads => "Region with threads",
            Self::Fuse => "disk --fuse",
            Self::Lock => "swap or a file system on a disk here",
            Self::Guest => "a VMM with guest",
        }
    }
}

/// Something that is needed, found or missing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Need {
    pub(super) name: &'static str,
    pub(super) needed_by: Vec<Use>,
    /// Whether nothing of that works without; else less of it does.
    pub(super) required: bool,
    pub(super) found: bool,
    /// How it was found, or why it was not.
    pub(super) detail: String,
    /// The remedies, the best first.
    pub(super) remedies: Vec<String>,
}

impl Need {
    /// Returns whether it is missing, and something cannot do without.
    pub(crate) fn blocks(&self, of: Use) -> bool {
        !self.found && self.required && self.needed_by.contains(&of)
    }

    /// Returns something that was found in this way, or is missing for this reason.
    pub(crate) fn new<R: ToString>(
        name: &'static str,
        by: &[Use],
        required: bool,
        found: Result<&str, String>,
        remedies: &[R],
    ) -> Self {
        let (is_found, needed_by) = (found.is_ok(), by.to_vec());
        let (detail, remedies) = match found {
            Ok(how) => (how.to_owned(), Vec::new()),
            Err(why) => (why, remedies.iter().map(R::to_string).collect()),
        };
        Self { name, needed_by, required, found: is_found, detail, remedies }
    }
}
