//! Where a setting came from, as `config show` tells it.

use std::fmt;
use std::path::PathBuf;

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// It follows from another option.
    Rule(&'static str),
    /// A configuration file.
    File(PathBuf),
    /// Its environment variable.
    Env,
    /// Its flag.
    Flag,
    /// The management API, while the server ran.
    Management,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Rule(why) => f.write_str(why),
            Origin::File(file) => write!(f, "{}", file.display()),
            Origin::Env => f.write_str("environment"),
            Origin::Flag => f.write_str("flag"),
            Origin::Management => f.write_str("management API"),
        }
    }
}
