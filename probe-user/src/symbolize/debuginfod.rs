//! What the operator configured of debuginfod: servers, and where what came from them is kept.

use super::cache::Cache;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use thiserror::Error;
use ureq::http::Uri;

/// Most servers that are asked for a file.
const MAX_SERVERS: usize = 8;

/// Servers of separate debug information. They are told build ids, nothing else.
#[derive(Debug)]
pub struct Debuginfod {
    pub(super) servers: Vec<String>,
    pub(super) cache: Cache,
}

/// Why no server can be asked.
#[derive(Debug, Error)]
pub enum DebuginfodError {
    /// No server is named.
    #[error(
        "DEBUGINFOD_URLS names no server; set it to addresses such as https://debuginfod.debian.net, separated by \
         spaces (sudo keeps it with --preserve-env=DEBUGINFOD_URLS)"
    )]
    NoServer,
    /// One is no address that can be asked.
    #[error("DEBUGINFOD_URLS: {0:?} is not an address that begins with http:// or https://")]
    Address(String),
    /// More than are asked.
    #[error("DEBUGINFOD_URLS names more than {MAX_SERVERS} servers")]
    TooMany,
    /// There is no place for what comes.
    #[error("debug files need a folder to be kept in; set XDG_CACHE_HOME or HOME to an absolute path")]
    NoFolder,
    /// The folder cannot be used.
    #[error("cannot keep debug files in {0}")]
    Folder(PathBuf, #[source] io::Error),
}

impl Debuginfod {
    /// Reads the variables that other clients read too, by `variable`: `DEBUGINFOD_URLS`, and
    /// `XDG_CACHE_HOME` or `HOME`. The folder is made if it is not there.
    ///
    /// # Errors
    /// Servers that are not named or cannot be asked, and a folder that cannot be written.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, DebuginfodError> {
        let servers = servers(&variable("DEBUGINFOD_URLS").unwrap_or_default().to_string_lossy())?;
        let folder = folder(variable)?;
        let cache = Cache::open(&folder).map_err(|error| DebuginfodError::Folder(folder, error))?;
        Ok(Self { servers, cache })
    }
}

fn servers(typed: &str) -> Result<Vec<String>, DebuginfodError> {
    let servers = typed.split_ascii_whitespace().map(server).collect::<Result<Vec<_>, _>>()?;
    match servers.len() {
        0 => Err(DebuginfodError::NoServer),
        1..=MAX_SERVERS => Ok(servers),
        _ => Err(DebuginfodError::TooMany),
    }
}

/// An address without its last slash, as a path is put behind it.
fn server(typed: &str) -> Result<String, DebuginfodError> {
    let uri = typed.parse::<Uri>().ok();
    let is_sane = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    });
    let refused = || DebuginfodError::Address(typed.to_owned());
    is_sane.then(|| typed.trim_end_matches('/').to_owned()).ok_or_else(refused)
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, DebuginfodError> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("whylag/debuginfod")).ok_or(DebuginfodError::NoFolder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_separated_by_spaces_and_asked_by_http() {
        assert_eq!(servers(" http://a:8002/ https://b/x").unwrap(), ["http://a:8002", "https://b/x"]);
        assert!(matches!(servers(" "), Err(DebuginfodError::NoServer)));
        for wrong in ["ima:enforcing http://a", "file:///srv", "a:8002", "http://", "http://a/?x=y"] {
            assert!(matches!(servers(wrong), Err(DebuginfodError::Address(_))), "{wrong}");
        }
        assert!(matches!(servers(&"http://a ".repeat(MAX_SERVERS + 1)), Err(DebuginfodError::TooMany)));
    }

    #[test]
    fn the_folder_is_where_caches_are() {
        let with = |set: &'static [(&str, &str)]| {
            folder(move |name| set.iter().find(|(its, _)| *its == name).map(|(_, value)| value.into()))
        };
        let own = |path: &str| PathBuf::from(path).join("whylag/debuginfod");
        assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]).unwrap(), own("/c"));
        assert_eq!(with(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]).unwrap(), own("/h/.cache"));
        assert!(matches!(with(&[("HOME", "")]), Err(DebuginfodError::NoFolder)));
    }
}
