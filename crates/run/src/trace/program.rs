//! The program that is to be traced.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::sys::inherited::Inherited;
use crate::sys::process::{Image, c_string};

/// What to run. Descriptors and what else exec keeps are those of the calling thread.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Name or path; a name without a slash is searched for in PATH.
    pub program: OsString,
    /// Arguments behind the name.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts; here if `None`.
    pub directory: Option<PathBuf>,
    /// Signals and standard streams that it begins with.
    pub inherited: Inherited,
    /// The kernel ends it before this process when memory runs out.
    pub is_first_to_end: bool,
}

impl Program {
    /// A program with arguments, in the environment of this process without zfold's own variables,
    /// such as passwords.
    pub(crate) fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: std::env::vars_os()
                .filter(|(name, _)| !name.as_bytes().starts_with(b"ZFOLD_"))
                .collect(),
            directory: None,
            inherited: Inherited::of_this_process(),
            is_first_to_end: false,
        }
    }

    /// The same as exec wants it.
    pub(super) fn image(&self) -> io::Result<Image> {
        let arguments = std::iter::once(&self.program).chain(&self.arguments);
        let environment = self.environment.iter().map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            c_string(pair.as_bytes())
        });
        Ok(Image {
            program: c_string(self.program.as_bytes())?,
            arguments: arguments.map(|a| c_string(a.as_bytes())).collect::<io::Result<_>>()?,
            environment: environment.collect::<io::Result<_>>()?,
            directory: match &self.directory {
                Some(directory) => Some(c_string(directory.as_os_str().as_bytes())?),
                None => None,
            },
            inherited: self.inherited,
        })
    }
}
