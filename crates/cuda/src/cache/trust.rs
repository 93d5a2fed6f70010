//! Decides whether a file or a folder of the cache is trusted. Code that runs on the GPU must not
//! come from another user, except from the superuser.
//!
//! | object | trusted if |
//! |---|---|
//! | file of this user | other users may not write it |
//! | file of the superuser | neither its group nor other users may write it |
//! | folder of this user | always: each file in it is checked |
//! | folder of the superuser | neither its group nor other users may write it |
//! | anything of another user | only if the settings trust all users |
//!
//! On a system without user ids, everything is trusted.
#![cfg_attr(unix, expect(unsafe_code, reason = "a function of the C library"))]

use std::fmt;
use std::fs::Metadata;

/// The users whose files are trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// True if the files of all users are trusted.
    pub(super) everyone: bool,
}

/// The reason why a file or a folder is not trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distrust {
    /// It belongs to another user.
    Owner {
        /// The id of the user to whom it belongs.
        owner: u32,
        /// The id of the user of this process.
        user: u32,
    },
    /// Other users may write it.
    Writable,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { owner, user } => {
                write!(f, "it belongs to user {owner}, and this process runs as user {user}")
            }
            Self::Writable => write!(f, "other users may write it"),
        }
    }
}

#[cfg(unix)]
impl Trust {
    /// Returns the reason why a file is not trusted, if there is one.
    pub(super) fn reject_file(self, about: &Metadata) -> Option<Distrust> {
        self.reject(about, 0o002)
    }

    /// Returns the reason why a folder is not trusted, if there is one.
    pub(super) fn reject_folder(self, about: &Metadata) -> Option<Distrust> {
        self.reject(about, 0)
    }

    /// Returns the reason to reject an object of this user whose mode has a bit of `forbidden`, an
    /// object of the superuser that its group or other users may write, or an object of another
    /// user.
    fn reject(self, about: &Metadata, forbidden: u32) -> Option<Distrust> {
        use std::os::unix::fs::MetadataExt;
        if self.everyone {
            return None;
        }
        // SAFETY: the function only returns a number.
        let user = unsafe { libc::geteuid() };
        let owner = about.uid();
        let forbidden = match owner {
            _ if owner == user => forbidden,
            0 => 0o022,
            _ => return Some(Distrust::Owner { owner, user }),
        };
        (about.mode() & forbidden != 0).then_some(Distrust::Writable)
    }
}

#[cfg(not(unix))]
impl Trust {
    /// Trusts every file.
    pub(super) fn reject_file(self, _about: &Metadata) -> Option<Distrust> {
        None
    }

    /// Trusts every folder.
    pub(super) fn reject_folder(self, _about: &Metadata) -> Option<Distrust> {
        None
    }
}
