//! The arguments of `zfold demo`.

use super::values::Format;
use crate::shared::size::Size;

pub(super) const EXAMPLES: &str = "\
Examples:
  What zfold does, on this machine:
    zfold demo
  With less memory, for a script:
    zfold demo --size 64MiB --format json | jq .limited.stored.ratio

Exit status: 0 both ended with the same result, 1 failed, 2 wrong usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Memory that the program fills; 16MiB or more. Its limit is a quarter of this.
    #[arg(long, value_name = "SIZE", default_value_t = Size(256 << 20))]
    pub(crate) size: Size,

    /// Output format; json has bytes and nanoseconds, schema zfold.demo/1.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}
