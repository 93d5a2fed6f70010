//! Decides whether a file or a folder of the cache is trusted.
//!
//! Code for the GPU must not come from another user, unless that user is the superuser.
//!
//! | object | trusted if |
//! |---|---|
//! | file of this user | other users may not write it |
//! | file of the superuser | neither its group nor other users may write it |
//! | folder of this user | always, because each file in the folder is checked |
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
    /// The object belongs to another user.
    Owner {
        /// The id of the object's owner.
        owner: u32,
        /// The id of the user of this process.
        user: u32,
    },
    /// Other users may write the object.
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
    /// Returns the reason why a file is not trusted. Returns `None` for a trusted file.
    pub(super) fn reject_file(self, about: &Metadata) -> Option<Distrust> {
        self.reject(about, 0o002)
    }

    /// Returns the reason why a folder is not trusted. Returns `None` for a trusted folder.
    pub(super) fn reject_folder(self, about: &Metadata) -> Option<Distrust> {
        self.reject(about, 0)
    }

    /// Returns the reason why an object is not trusted. Rejects three kinds of objects, unless all
    /// users are trusted:
    ///
    /// - an object of this user whose mode has a bit of `forbidden`
    /// - an object of the superuser that its group or other users may write
    /// - an object of another user
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
    pub(super) fn reject_file(self, _about: &Metadata) -> Option<Distrust> {
        None
    }

    pub(super) fn reject_folder(self, _about: &Metadata) -> Option<Distrust> {
        None
    }
}
