//! Test runners; a development dependency only.
