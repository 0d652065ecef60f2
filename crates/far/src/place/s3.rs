//! `s3://BUCKET/PATH`: a bucket, names in it, and what the environment says of the way there.

use std::fmt;

use super::error::{PlaceError, place_error};

/// The variables that are looked at, as every program of AWS calls them. A later one stands in for
/// an earlier one with the same meaning.
const VARIABLES: [&str; 14] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// A bucket of S3, or of what speaks like it, and a path in it.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Place {
    /// The bucket.
    pub bucket: String,
    /// The beginning of objects' names, or the name of one object: without a slash at its ends, and
    /// empty if the place is the whole bucket.
    pub path: String,
    /// Variables that are set, with their values (U1).
    variables: Vec<(&'static str, String)>,
}

impl S3Place {
    /// Reads what is behind `s3://`.
    pub(super) fn parse(
        rest: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PlaceError> {
        if rest.contains('@') {
            return Err(place_error!(
                "s3://: credentials do not belong in an address: set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY"
            ));
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if bucket.is_empty() || !bucket.chars().all(plain) {
            return Err(place_error!("`s3://{rest}` has no bucket: give s3://BUCKET/PATH"));
        }
        let path = path.trim_matches('/');
        let usable = |part: &str| {
            let dots = part == "." || part == "..";
            !part.is_empty() && !dots && part.chars().all(|c| plain(c) || "=+,:!()' ".contains(c))
        };
        if !path.is_empty() && !path.split('/').all(usable) {
            return Err(place_error!(
                "`s3://{rest}`: a path has letters, digits and ._-=+,:!() between single slashes: \
                 choose another"
            ));
        }
        let set = |name: &'static str| {
            variable(name).filter(|value| !value.is_empty()).map(|value| (name, value))
        };
        let variables = VARIABLES.into_iter().filter_map(set).collect();
        Ok(Self { bucket: bucket.to_owned(), path: path.to_owned(), variables })
    }

    /// Returns the variables that are set, with their values.
    #[cfg(feature = "s3")]
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    /// Returns the URL that requests go to, if it is not that of AWS.
    #[cfg(feature = "s3")]
    pub(crate) fn endpoint(&self) -> Option<&str> {
        let of = |name| self.variables.iter().find(|(known, _)| *known == name);
        let found = of("AWS_ENDPOINT_URL_S3").or_else(|| of("AWS_ENDPOINT_URL"));
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.path)
    }
}

impl fmt::Debug for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Place {{ {self} .. }}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Place, Source};
    use super::*;

    fn parse(text: &str) -> Result<S3Place, PlaceError> {
        let variable = |name: &str| Some(format!("hunter2 of {name}"));
        match Place::parse(text, Source::Arguments, variable)? {
            Place::S3(place) => Ok(place),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_place_is_a_bucket_and_a_path() {
        for (text, bucket, path) in [
            ("s3://pages", "pages", ""),
            ("s3://pages/", "pages", ""),
            ("s3://my.pages-1/a/b_c/", "my.pages-1", "a/b_c"),
            ("s3://b/date=2026-01-01/disk.zfs", "b", "date=2026-01-01/disk.zfs"),
        ] {
            let place = parse(text).expect(text);
            assert_eq!((&*place.bucket, &*place.path), (bucket, path));
            assert_eq!(Place::S3(place).to_string(), format!("s3://{bucket}/{path}"));
        }
        for text in
            ["s3://", "s3:///a", "s3://a b/c", "s3://a//b/../c", "s3://a/b//c", "s3://a/b?x"]
        {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn no_text_has_what_the_environment_says() {
        let place = parse("s3://pages/a").expect("a place");
        assert!(!format!("{place:?} {place}").contains("hunter2"), "{place:?} {place}");
        let error = parse("s3://key:hunter3@pages/a").expect_err("a key in an address").to_string();
        assert!(!error.contains("hunter3") && error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    }
}
