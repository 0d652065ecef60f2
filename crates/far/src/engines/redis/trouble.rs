//! Why one attempt at one server did not succeed.

use crate::engine::EngineError;

/// A result other than a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trouble {
    /// No answer by the deadline.
    Late,
    /// The connection is gone, or there was none.
    Lost(String),
    /// The server cannot now, and may soon: it loads, or a script keeps it.
    NotNow(String),
    /// The server has no room for one more connection, and closes this one.
    Crowded(String),
    /// The server will not. Its message.
    Refused(String),
}

impl Trouble {
    /// Returns whether the connection it came over is still good.
    pub(super) fn spares_link(&self) -> bool {
        !matches!(self, Self::Late | Self::Lost(_) | Self::Crowded(_))
    }

    /// Returns whether other connections to that server are still good.
    pub(super) fn spares_others(&self) -> bool {
        !matches!(self, Self::Late | Self::Lost(_))
    }

    /// Returns what a server means that answers with an error; the text begins with its code.
    pub(super) fn of_answer(said: String) -> Self {
        match said.split_ascii_whitespace().next().unwrap_or_default() {
            "BUSY" | "LOADING" | "MASTERDOWN" | "NOREPLICAS" | "READONLY" => Self::NotNow(said),
            _ if said.contains("max number of clients") => Self::Crowded(said),
            _ => Self::Refused(said),
        }
    }
}

impl From<Trouble> for EngineError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Late => Self::Late,
            Trouble::Lost(why) | Trouble::NotNow(why) => Self::Unreachable(why),
            Trouble::Crowded(why) => Self::Unreachable(format!("{why}; raise its maxclients")),
            Trouble::Refused(why) => Self::Refused(remedied(why)),
        }
    }
}

/// Adds the remedy to a server's message, if there is one.
fn remedied(said: String) -> String {
    let code = said.split_ascii_whitespace().next().unwrap_or_default();
    let remedy = match code {
        "OOM" => "raise its maxmemory",
        "NOAUTH" | "WRONGPASS" => "set ZFOLD_REDIS_USER and ZFOLD_REDIS_PASSWORD",
        "NOPERM" => "allow the user ~zfold:* +set +wait +getrange +unlink +expire +info",
        "MISCONF" => "let it save its data again (its log says what fails), or switch saving off",
        _ => return said,
    };
    format!("{said}; {remedy}")
}
