//! Writing a trace: a file that many threads append batches of programs to.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bytes::Put;
use crate::finding::Finding;
use crate::model::Launch;

pub(crate) const MAGIC: &[u8; 8] = b"TWTRACE\x02";

pub(crate) const WITH_VALUES: u64 = 1;
pub(crate) const CUT_SHORT: u64 = 2;
pub(crate) const STOPPED: u64 = 4;

/// A thread hands its programs over once they have so many bytes.
const BATCH: usize = 1 << 18;

/// A trace that is being written.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    launches: AtomicU32,
    /// Why nothing more can be written.
    failure: Mutex<Option<io::Error>>,
}

/// How much of a launch is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// At most so many programs are recorded with values.
    pub programs: u64,
    /// Bytes of values in all; then values are left out.
    pub value_bytes: u64,
    /// Bytes in all; then accesses are left out too.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { programs: 256, value_bytes: 64 << 20, bytes: 256 << 20 }
    }
}

impl Recorder {
    /// A new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(MAGIC)?;
        Ok(Self { file: Mutex::new(file), launches: AtomicU32::new(0), failure: Mutex::new(None) })
    }

    /// The number of the next launch.
    pub fn next_launch(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes the elements of a tensor, row after row, before or after a launch.
    pub fn snapshot(&self, launch: u32, tensor: u32, is_after: bool, elements: &[u8]) {
        let mut head = Vec::new();
        head.number(launch.into());
        head.number(tensor.into());
        head.number(is_after.into());
        self.chunk(*b"TENS", &[&head, elements]);
    }

    /// Writes what a sanitizer has found in a launch by these checks.
    pub fn findings(&self, launch: u32, checks: &str, findings: &[Finding]) {
        let mut bytes = Vec::new();
        bytes.number(launch.into());
        bytes.text(checks);
        bytes.list(findings, |out, finding| finding.encode(out));
        self.chunk(*b"FIND", &[&bytes]);
    }

    /// What went wrong with the file since it was asked for last.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn chunk(&self, tag: [u8; 4], parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut write = || {
            let mut head = tag.to_vec();
            head.extend_from_slice(&(length as u64).to_le_bytes());
            file.write_all(&head)?;
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        if let Err(error) = write() {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

/// A launch that is being recorded.
#[derive(Debug)]
pub struct Recording<'a> {
    recorder: &'a Recorder,
    number: u32,
    launch: &'a Launch,
    value_bytes_left: AtomicI64,
    bytes_left: AtomicI64,
    /// Nothing more is recorded.
    is_full: AtomicBool,
}

impl<'a> Recording<'a> {
    /// Begins to record a launch, whose number [`Recorder::next_launch`] has given.
    pub fn begin(recorder: &'a Recorder, number: u32, launch: &'a Launch, limits: Limits) -> Self {
        let mut bytes = Vec::new();
        bytes.number(number.into());
        launch.encode(&mut bytes);
        recorder.chunk(*b"LNCH", &[&bytes]);
        let left = |bytes: u64| AtomicI64::new(bytes.min(i64::MAX as u64) as i64);
        Self {
            recorder,
            number,
            launch,
            value_bytes_left: left(limits.value_bytes),
            bytes_left: left(limits.bytes),
            is_full: AtomicBool::new(false),
        }
    }

    /// The tables of the launch.
    pub fn launch(&self) -> &'a Launch {
        self.launch
    }

    /// What a thread appends programs to.
    pub fn batch(&'a self) -> Batch<'a> {
        Batch {
            recording: self,
            programs: Vec::new(),
            events: Vec::new(),
            number: 0,
            flags: 0,
            values_left: 0,
            left: 0,
        }
    }

    /// Ends the recording, with the diagnostic of a launch that failed.
    pub fn end(self, nanoseconds: u64, failure: Option<&str>) {
        let mut bytes = Vec::new();
        bytes.number(self.number.into());
        bytes.number(nanoseconds);
        bytes.text(failure.unwrap_or(""));
        self.recorder.chunk(*b"DONE", &[&bytes]);
    }
}

/// Programs that one thread runs, one after the other.
#[derive(Debug)]
pub struct Batch<'a> {
    recording: &'a Recording<'a>,
    programs: Vec<u8>,
    /// Those of the program that runs.
    events: Vec<u8>,
    number: u64,
    flags: u64,
    /// How many bytes of values the program may still have, and how many bytes.
    values_left: usize,
    left: usize,
}

/// What a program may have of what is left for all of them.
const SHARE: i64 = 8;

impl Batch<'_> {
    /// A program begins.
    pub fn begin(&mut self, number: u64) {
        let recording = self.recording;
        let share = |left: &AtomicI64| (left.load(Ordering::Relaxed) / SHARE).max(0) as usize;
        (self.number, self.flags) = (number, 0);
        self.events.clear();
        self.left = share(&recording.bytes_left);
        if recording.launch.is_sampled(number) {
            self.flags |= WITH_VALUES;
            self.values_left = share(&recording.value_bytes_left).min(self.left);
        }
    }

    /// Whether the program is recorded with values.
    pub fn has_values(&self) -> bool {
        self.flags & WITH_VALUES != 0
    }

    /// An event begins, if there is room for one.
    pub fn event(&mut self, op: u32) -> bool {
        if self.events.len() >= self.left {
            self.flags |= CUT_SHORT;
            return false;
        }
        self.events.number(op.into());
        true
    }

    /// Where the next event will be.
    pub fn mark(&self) -> usize {
        self.events.len()
    }

    /// Takes back what was recorded since the mark.
    pub fn rewind(&mut self, mark: usize) {
        self.events.truncate(mark);
    }

    /// An event of a program with values ends.
    pub fn took(&mut self, nanoseconds: u64) {
        self.events.number(nanoseconds);
    }

    /// A value that is not recorded.
    pub fn absent(&mut self) {
        self.events.push(0);
    }

    /// Pointers follow, relative to a parameter or, without one, as addresses.
    pub fn relative_to(&mut self, parameter: Option<usize>) {
        self.events.number(parameter.map_or(0, |parameter| parameter as u64 + 1));
    }

    /// A value all of whose elements have these bits.
    pub fn uniform(&mut self, bits: u64) {
        self.events.push(1);
        self.events.number(bits);
    }

    /// A value in arithmetic progression.
    pub fn affine(&mut self, base: i64, strides: &[i64]) {
        self.events.push(2);
        self.events.signed(base);
        for &stride in strides {
            self.events.signed(stride);
        }
    }

    /// Booleans that are true in a box.
    pub fn ranges(&mut self, ranges: impl Iterator<Item = (u32, u32)>) {
        self.events.push(3);
        for (low, high) in ranges {
            self.events.number(low.into());
            self.events.number(high.into());
        }
    }

    /// The elements of a value, if there is room for them.
    pub fn elements(&mut self, bytes: &[u8]) {
        if bytes.len() > self.values_left {
            self.flags |= CUT_SHORT;
            return self.absent();
        }
        self.values_left -= bytes.len();
        self.events.push(4);
        self.events.extend_from_slice(bytes);
    }

    /// Pointers, relative to what [`relative_to`](Self::relative_to) has said.
    pub fn pointers(&mut self, offsets: impl Iterator<Item = i64> + Clone) {
        if offsets.clone().all(|offset| i32::try_from(offset).is_ok()) {
            self.events.push(6);
            offsets.for_each(|offset| self.events.extend_from_slice(&(offset as i32).to_le_bytes()));
        } else {
            self.events.push(5);
            offsets.for_each(|offset| self.events.extend_from_slice(&offset.to_le_bytes()));
        }
    }

    /// Booleans, a byte each.
    pub fn bits(&mut self, bytes: &[u8]) {
        self.events.push(7);
        let packed = bytes.chunks(8).map(|eight| {
            eight.iter().enumerate().fold(0, |bits, (index, &byte)| bits | (u8::from(byte != 0) << index))
        });
        self.events.extend(packed);
    }

    /// The program ends, or has stopped at its last event.
    pub fn end(&mut self, nanoseconds: u64, has_stopped: bool) {
        let recording = self.recording;
        if recording.is_full.load(Ordering::Relaxed) {
            return;
        }
        if has_stopped {
            self.flags |= STOPPED;
        }
        let before = self.programs.len();
        self.programs.number(self.number);
        self.programs.number(self.flags);
        self.programs.number(nanoseconds);
        self.programs.number(self.events.len() as u64);
        self.programs.append(&mut self.events);
        let taken = (self.programs.len() - before) as i64;
        if self.has_values() {
            recording.value_bytes_left.fetch_sub(taken, Ordering::Relaxed);
        }
        if recording.bytes_left.fetch_sub(taken, Ordering::Relaxed) < taken {
            recording.is_full.store(true, Ordering::Relaxed);
        }
        if self.programs.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.programs.is_empty() {
            let mut head = Vec::new();
            head.number(self.recording.number.into());
            self.recording.recorder.chunk(*b"PROG", &[&head, &self.programs]);
            self.programs.clear();
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
