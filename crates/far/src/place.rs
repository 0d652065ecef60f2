//! Where pages and snapshots go, as the user names it: `redis://`, `rediss://`, `s3://` or
//! `nbd://`, read into a plan.
//!
//! - U1: a password is in no text that this module or an engine makes: not in `Debug`, not in
//!   `Display`, not in an error.

mod address;
mod error;
mod nbd;
mod s3;

use std::fmt;

use percent_encoding::percent_decode_str;

pub use address::Address;
pub use error::PlaceError;
pub(crate) use error::place_error;
pub use nbd::NbdPlace;
pub use s3::S3Place;

/// The most copies of an object that can be asked for.
pub const COPIES_MAX: usize = 3;

/// A user's name and password (U1).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl Login {
    /// Returns a login; a user without a password does not log in.
    #[must_use]
    pub fn new(user: Option<String>, password: Option<String>) -> Self {
        Self { user, password }
    }

    /// Returns the user's name, if one was given.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login {{ .. }}")
    }
}

/// Servers of Redis, or what speaks like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisPlace {
    /// The servers that were named: a master and its replicas.
    pub servers: Vec<Address>,
    /// The user's name.
    pub login: Login,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// How many servers have an object before it counts as put, from 1 to [`COPIES_MAX`]: a master
    /// and its replicas.
    pub copies: usize,
}

/// Where pages go, or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// `redis://` and `rediss://`.
    Redis(RedisPlace),
    /// `s3://`.
    S3(S3Place),
    /// `nbd://`.
    Nbd(NbdPlace),
}

/// Where a text came from: all users of the machine can see passwords on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The arguments of a program.
    Arguments,
    /// A file that only its owner should be able to read.
    File,
}

impl Place {
    /// Returns whether `text` names a place on other machines and no file: whether it begins with
    /// a scheme and `://`.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
        })
    }

    /// Reads a place. `variable` returns the value of a variable of the environment:
    /// `ZFOLD_REDIS_USER` and `ZFOLD_REDIS_PASSWORD` complete the text; those of AWS name the
    /// endpoint and the key.
    ///
    /// # Errors
    /// The text names no place, or has a password where all users can see it.
    pub fn parse(
        text: &str,
        source: Source,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PlaceError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        match scheme {
            "redis" | "rediss" => redis(scheme, rest, source, variable).map(Self::Redis),
            "s3" => S3Place::parse(rest, variable).map(Self::S3),
            "nbd" => NbdPlace::parse(rest).map(Self::Nbd),
            _ => Err(place_error!(
                "zfold knows no {scheme}://: give redis://HOST, rediss://HOST, s3://BUCKET/KEY or \
                 nbd://HOST/EXPORT"
            )),
        }
    }

    /// Returns why a place cannot be used whose feature is missing.
    #[cfg(not(all(feature = "nbd", feature = "redis", feature = "s3")))]
    pub(crate) fn not_built(&self) -> PlaceError {
        let feature = match self {
            Self::Redis(_) => "redis",
            Self::S3(_) => "s3",
            Self::Nbd(_) => "nbd",
        };
        place_error!("{self}: this zfold was built without it; build with --features {feature}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(place) => {
                let servers: Vec<_> = place.servers.iter().map(Address::to_string).collect();
                let s = if place.tls { "s" } else { "" };
                write!(f, "redis{s}://{}/", servers.join(","))?;
                if place.copies > 1 { write!(f, "?copies={}", place.copies) } else { Ok(()) }
            }
            Self::S3(place) => place.fmt(f),
            Self::Nbd(place) => place.fmt(f),
        }
    }
}

fn redis(
    scheme: &str,
    rest: &str,
    source: Source,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<RedisPlace, PlaceError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    // The last one: a password may have one that was not escaped.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (user, password) = match login {
        Some(login) => match login.split_once(':') {
            Some((user, password)) => (Some(user), Some(password)),
            None => (Some(login), None),
        },
        None => (None, None),
    };
    if password.is_some() && source == Source::Arguments {
        return Err(place_error!(
            "a password on the command line is seen by everybody on this machine: set \
             ZFOLD_REDIS_PASSWORD and leave it out of the address"
        ));
    }
    let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() && path != "0" {
        return Err(place_error!(
            "{scheme}://{servers}/: zfold keeps its objects in database 0: leave /{path} out"
        ));
    }
    let servers: Vec<_> =
        servers.split(',').map(Address::parse).collect::<Result<_, _>>().map_err(|error| {
            place_error!("{scheme}://: {error}, several with commas between them")
        })?;
    let mut copies = 1;
    for option in query.split('&').filter(|option| !option.is_empty()) {
        copies = match option.split_once('=') {
            Some(("copies", count)) => count.parse().ok().filter(|n| (1..=COPIES_MAX).contains(n)),
            _ => None,
        }
        .ok_or_else(|| {
            place_error!("{scheme}://: ?{option} is not an option: give ?copies=1 to {COPIES_MAX}")
        })?;
    }
    let given = |text: Option<&str>, name| match text.filter(|text| !text.is_empty()) {
        Some(text) => {
            percent_decode_str(text).decode_utf8().map(|text| Some(text.into_owned())).map_err(
                |_| place_error!("{scheme}://: the user or the password is not UTF-8: set {name}"),
            )
        }
        None => Ok(variable(name).filter(|value| !value.is_empty())),
    };
    let login =
        Login::new(given(user, "ZFOLD_REDIS_USER")?, given(password, "ZFOLD_REDIS_PASSWORD")?);
    if login.user.is_some() && login.password.is_none() {
        return Err(place_error!(
            "{scheme}://: a user without a password: set ZFOLD_REDIS_PASSWORD"
        ));
    }
    Ok(RedisPlace { servers, login, tls: scheme == "rediss", copies })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Place, PlaceError> {
        Place::parse(text, Source::File, |_| None)
    }

    fn redis(text: &str) -> RedisPlace {
        match parse(text) {
            Ok(Place::Redis(place)) => place,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let cases = [
            ("a", "a:6379"),
            ("a.b-c:1", "a.b-c:1"),
            ("10.0.0.1", "10.0.0.1:6379"),
            ("[::1]", "[::1]:6379"),
            ("[::1]:7", "[::1]:7"),
            ("::1:7", "[::1]:7"),
        ];
        for (text, whole) in cases {
            assert_eq!(Address::parse(text).expect(text).to_string(), whole);
        }
        for text in ["", ":1", "a:", "a:0", "a:65536", "a b", "a:b:c"] {
            Address::parse(text).expect_err(text);
        }
    }

    #[test]
    fn redis_has_servers_and_copies() {
        let place = redis("redis://a,b:7/?copies=2");
        assert_eq!(place.servers, [Address::new("a", 6379), Address::new("b", 7)]);
        assert_eq!((place.copies, place.tls), (2, false));
        assert_eq!(Place::Redis(place).to_string(), "redis://a:6379,b:7/?copies=2");
        let place = redis("rediss://a");
        assert_eq!((place.copies, place.tls), (1, true));
        for text in [
            "redis://",
            "redis://a/1",
            "redis://a,,b",
            "redis://a?copies=0",
            "redis://a?copies=4",
            "redis://a?copy=1",
            "redis://user@a",
            "mongo://a",
        ] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn an_export_has_a_server_and_may_have_a_name() {
        for (text, whole) in [
            ("nbd://a", "nbd://a:10809/"),
            ("nbd://a:7/", "nbd://a:7/"),
            ("nbd://[::1]/cold/1", "nbd://[::1]:10809/cold/1"),
            ("nbd://a/two%20words", "nbd://a:10809/two%20words"),
        ] {
            assert_eq!(parse(text).expect(text).to_string(), whole);
        }
        for text in ["nbd://", "nbd:///x", "nbd://a:0", "nbd://a/%ff", "nbd://a/%0a", "nbds://a"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn a_login_comes_from_the_address_or_the_environment() {
        let place = redis("redis://me:a%40b@h");
        assert_eq!(place.login, Login::new(Some("me".into()), Some("a@b".into())));
        let place = redis("redis://:secret@h");
        assert_eq!(place.login, Login::new(None, Some("secret".into())));
        let variable = |name: &str| Some(format!("of {name}"));
        let place = Place::parse("redis://h", Source::Arguments, variable);
        let user = Some("of ZFOLD_REDIS_USER".to_owned());
        let password = Some("of ZFOLD_REDIS_PASSWORD".to_owned());
        let Ok(Place::Redis(place)) = place else { panic!("{place:?}") };
        assert_eq!(place.login, Login::new(user, password));
    }

    #[test]
    fn no_text_has_the_password() {
        let place = parse("redis://me:hunter2@h").expect("a place");
        assert!(!format!("{place:?} {place}").contains("hunter2"), "{place:?} {place}");
        for (text, source) in [
            ("redis://me:hunter2@h", Source::Arguments),
            ("redis://me:hunter2@h/9", Source::File),
            ("redis://me:hunter2@h?x", Source::File),
            ("redis://me:hunter2@", Source::File),
            ("redis://me:hunter2@h:no", Source::File),
            ("redis://me:%ffhunter2@h", Source::File),
        ] {
            let error = Place::parse(text, source, |_| None).expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn files_are_no_places() {
        for (text, meant) in
            [("redis://a", true), ("mongo://a", true), ("/var/tmp/cold", false), ("a://", true)]
        {
            assert_eq!(Place::is_meant(text), meant, "{text}");
        }
        assert!(!Place::is_meant("./redis://a") && !Place::is_meant("://a"));
    }
}
