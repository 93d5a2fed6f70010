//! Implements `tilewright cache`, which lists, verifies, prunes and clears cached files.

mod timings;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tilewright::runtime::cuda::{Cache, CacheEntry, EntryState, Removed, Settings, StoredFile};

use crate::output::{self, Failure};
use timings::{Content, Table, Timings};

/// List, verify, prune and clear the cached cubins and timings
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the cubins and the timings of tuners, the most recently used first
    Ls,
    /// Print all that is known about a cubin or about the timings of a tuner
    Show {
        /// The key, or its first digits, as `tilewright cache ls` prints them
        key: String,
    },
    /// Remove unfinished and damaged files, files of older formats, and the least recently used files
    ///
    /// The limit applies to the cubins and to the timings separately.
    Gc {
        /// The maximum size of the cubins, and of the timings, in place of `TILEWRIGHT_CACHE_LIMIT`
        #[arg(long, value_name = "MIB")]
        limit: Option<u64>,
    },
    /// Read every trusted file, and check its checksum; the exit code is 1 if a file is damaged
    Verify,
    /// Remove all cubins and timings
    Clear,
}

/// The number of digits of a key in the list.
const KEY_DIGITS: usize = 12;

/// The cache folder, size limit and cubin cache, which the environment variables select.
struct Store {
    directory: PathBuf,
    limit: u64,
    cubins: Cache,
}

/// A cached file: a cubin, or the timings of a tuner.
enum Item {
    Cubin(CacheEntry),
    Timings(Timings),
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let settings = Settings::from_environment();
    let cubins = Cache::new(&settings);
    let Some(directory) = settings.cache_directory else {
        let message = "there is no cache folder: neither HOME nor TILEWRIGHT_CACHE_DIR is set";
        return Err(Failure::Io(message.to_owned()));
    };
    let store = Store { directory, limit: settings.cache_limit, cubins };
    match command {
        Command::Ls => store.list(),
        Command::Show { key } => store.show(key),
        Command::Gc { limit } => {
            let limit = limit.map_or(store.limit, |mebibytes| mebibytes.saturating_mul(1 << 20));
            store.removed(&store.collect_garbage(limit)?)
        }
        Command::Verify => store.verify(),
        Command::Clear => store.removed(&store.clear()?),
    }
}

impl Store {
    fn cannot_read(&self, error: &std::io::Error) -> Failure {
        Failure::Io(format!("cannot read {}: {error}", self.directory.display()))
    }

    /// Returns the cached files, the most recently used first. Always checks the checksums of
    /// timings. Checks those of cubins only if `is_whole` is true.
    fn items(&self, is_whole: bool) -> Result<Vec<Item>, Failure> {
        let cubins = if is_whole { self.cubins.verify() } else { self.cubins.entries() };
        let cubins = cubins.map_err(|error| self.cannot_read(&error))?;
        let timings =
            timings::list(&self.directory, &self.cubins).map_err(|error| self.cannot_read(&error))?;
        let mut items: Vec<_> =
            cubins.into_iter().map(Item::Cubin).chain(timings.into_iter().map(Item::Timings)).collect();
        items.sort_by_key(|item| (std::cmp::Reverse(item.file().used), item.key()));
        Ok(items)
    }

    fn list(&self) -> Result<(), Failure> {
        let items = self.items(false)?;
        let head = ["kind", "key", "kernel", "target", "size", "last use", ""].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(items.iter().map(Item::row)).collect();
        let mut text = String::new();
        if !items.is_empty() {
            write_table(&mut text, &rows);
        }
        let bytes: u64 = items.iter().map(|item| item.file().bytes).sum();
        let (files, size, limit) = (count(items.len(), "file"), size(bytes), size(self.limit));
        let _ = writeln!(text, "{files}, {size} of {limit}, in {}", self.directory.display());
        output::print(&text)
    }

    fn show(&self, key: &str) -> Result<(), Failure> {
        let mut items = self.items(true)?;
        items.retain(|item| !key.is_empty() && item.key().starts_with(key));
        match &items[..] {
            [item] => output::print(&item.describe()),
            [] => Err(Failure::Usage(format!(
                "no cached file has a key that begins with `{key}`; `tilewright cache ls` lists the keys"
            ))),
            _ => {
                let keys: Vec<_> = items.iter().map(Item::key).collect();
                Err(Failure::Usage(format!("several keys begin with `{key}`: {}", keys.join(", "))))
            }
        }
    }

    fn verify(&self) -> Result<(), Failure> {
        let items = self.items(true)?;
        let mut text = String::new();
        let mut damaged = 0;
        for item in &items {
            damaged += usize::from(item.is_damaged());
            if let Some(note) = item.note() {
                let _ = writeln!(text, "{}: {note}", item.file().path.display());
            }
        }
        let files = count(items.len(), "file");
        let _ = writeln!(text, "{}: {files}, {damaged} damaged", self.directory.display());
        output::print(&text)?;
        if damaged == 0 {
            return Ok(());
        }
        output::note("help: `tilewright cache gc` removes damaged files; launches build them anew");
        Err(Failure::Told)
    }

    fn collect_garbage(&self, limit: u64) -> Result<Removed, Failure> {
        let mut removed = self.cubins.collect_garbage(limit).map_err(|error| self.cannot_read(&error))?;
        let timings = timings::collect_garbage(&self.directory, &self.cubins, limit);
        removed.add(timings.map_err(|error| self.cannot_read(&error))?);
        Ok(removed)
    }

    fn clear(&self) -> Result<Removed, Failure> {
        let mut removed = self.cubins.clear().map_err(|error| self.cannot_read(&error))?;
        let timings = timings::clear(&self.directory, &self.cubins);
        removed.add(timings.map_err(|error| self.cannot_read(&error))?);
        Ok(removed)
    }

    /// Prints the number and the size of the removed files and of the remaining files.
    fn removed(&self, removed: &Removed) -> Result<(), Failure> {
        let items = self.items(false)?;
        let left: u64 = items.iter().map(|item| item.file().bytes).sum();
        output::print(&format!(
            "removed {}, {}; left {}, {}, in {}\n",
            count(removed.files, "file"),
            size(removed.bytes),
            count(items.len(), "file"),
            size(left),
            self.directory.display()
        ))?;
        match &removed.failures[..] {
            [] => Ok(()),
            [(path, error), ..] => {
                let (files, path) = (count(removed.failures.len(), "file"), path.display());
                Err(Failure::Io(format!("cannot remove {files}, such as {path}: {error}")))
            }
        }
    }
}

impl Item {
    fn file(&self) -> &StoredFile {
        match self {
            Self::Cubin(entry) => &entry.file,
            Self::Timings(timings) => &timings.file,
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Cubin(entry) => entry.key.to_hex(),
            Self::Timings(timings) => timings.digest.clone(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Cubin(_) => "cubin",
            Self::Timings(_) => "timings",
        }
    }

    fn kernel(&self) -> &str {
        match self {
            Self::Cubin(entry) => &entry.provenance.kernel,
            Self::Timings(timings) => &timings.kernel,
        }
    }

    fn target(&self) -> &str {
        match self {
            Self::Cubin(entry) => &entry.provenance.target,
            Self::Timings(Timings { content: Content::Usable(table), .. }) => &table.device,
            Self::Timings(_) => "",
        }
    }

    fn is_damaged(&self) -> bool {
        match self {
            Self::Cubin(entry) => entry.state == EntryState::Damaged,
            Self::Timings(timings) => matches!(timings.content, Content::Damaged),
        }
    }

    /// Returns the reason why launches do not use the file. Returns `None` if launches use it.
    fn note(&self) -> Option<String> {
        let distrust = match self {
            Self::Cubin(entry) => match entry.state {
                EntryState::Usable => return None,
                EntryState::Damaged => return Some("damaged".to_owned()),
                EntryState::Unreadable => return Some("not readable".to_owned()),
                EntryState::Untrusted(distrust) => distrust,
            },
            Self::Timings(timings) => match timings.content {
                Content::Usable(_) => return None,
                Content::Damaged => return Some("damaged".to_owned()),
                Content::Unreadable => return Some("not readable".to_owned()),
                Content::Untrusted(distrust) => distrust,
            },
        };
        Some(format!("not trusted: {distrust}"))
    }

    fn row(&self) -> [String; 7] {
        let mut key = self.key();
        key.truncate(KEY_DIGITS);
        let known = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let StoredFile { bytes, used, .. } = self.file();
        [
            self.kind().to_owned(),
            key,
            known(self.kernel()),
            known(self.target()),
            size(*bytes),
            age(*used),
            self.note().unwrap_or_default(),
        ]
    }

    fn describe(&self) -> String {
        let mut lines = vec![
            ("kind", self.kind().to_owned()),
            ("key", self.key()),
            ("kernel", self.kernel().to_owned()),
            ("target", self.target().to_owned()),
        ];
        if let Self::Cubin(entry) = self {
            lines.push(("driver", entry.provenance.driver.clone()));
            lines.push(("options", entry.provenance.options.clone()));
        }
        let file = self.file();
        lines.push(("size", format!("{} bytes", file.bytes)));
        lines.push(("last use", age(file.used)));
        lines.push(("state", self.note().unwrap_or_else(|| "usable".to_owned())));
        lines.push(("file", file.path.display().to_string()));
        let mut text = String::new();
        for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "{name}: {value}");
        }
        if let Self::Timings(Timings { content: Content::Usable(table), .. }) = self {
            write_timings(&mut text, table);
        }
        text
    }
}

/// Writes the rows of a file of timings. The fastest configuration is the first row.
fn write_timings(text: &mut String, table: &Table) {
    let _ = writeln!(text, "arguments: {}", table.key);
    let median = |row: &[Option<f64>]| row.first().copied().flatten().unwrap_or(f64::INFINITY);
    let mut rows: Vec<_> = table.rows.iter().map(|(config, row)| (median(row), config)).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    for (milliseconds, config) in rows {
        let time =
            if milliseconds.is_finite() { format!("{milliseconds:.4} ms") } else { "does not run".into() };
        let _ = writeln!(text, "  {time}  {config}");
    }
}

/// Writes rows in aligned columns.
fn write_table<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..COLUMNS).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn count(number: usize, name: &str) -> String {
    if number == 1 { format!("1 {name}") } else { format!("{number} {name}s") }
}

/// Returns a size as a text such as `12.4 KiB`.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1 << shift)),
        None => count(bytes as usize, "byte"),
    }
}

/// Returns the time since a file was used as a text such as `5 minutes ago`.
fn age(used: SystemTime) -> String {
    let Ok(age) = SystemTime::now().duration_since(used) else { return "in the future".to_owned() };
    let units = [
        ("day", Duration::from_hours(24)),
        ("hour", Duration::from_hours(1)),
        ("minute", Duration::from_mins(1)),
    ];
    match units.into_iter().find(|(_, unit)| age >= *unit) {
        Some((name, unit)) => format!("{} ago", count((age.as_secs() / unit.as_secs()) as usize, name)),
        None => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes = [1, 1023, 1024, 12_700, 5 << 20, 1 << 30].map(size);
        assert_eq!(sizes, ["1 byte", "1023 bytes", "1.0 KiB", "12.4 KiB", "5.0 MiB", "1.0 GiB"]);
        let now = SystemTime::now();
        let ages = [3, 60, 7200, 100_000, 200_000].map(|seconds| age(now - Duration::from_secs(seconds)));
        assert_eq!(ages, ["now", "1 minute ago", "2 hours ago", "1 day ago", "2 days ago"]);
        assert_eq!(age(now + Duration::from_hours(1)), "in the future");
    }
}
