//! Writes a trace. Many threads append batches of programs to one file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bytes::Encoder;
use crate::finding::Finding;
use crate::model::{Launch, Simulation};

pub(crate) const MAGIC: &[u8; 8] = b"TWTRACE\x02";

pub(crate) const WITH_VALUES: u64 = 1;
pub(crate) const CUT_SHORT: u64 = 2;
pub(crate) const STOPPED: u64 = 4;

/// The number of bytes after which a thread writes its batch of programs.
const BATCH: usize = 1 << 18;

/// A trace file that is being written.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    launches: AtomicU32,
    /// The first write error since the last call of [`Recorder::take_failure`].
    failure: Mutex<Option<io::Error>>,
}

/// Limits on the size of a launch's record.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of programs with values. The last program of the grid also has values,
    /// and does not count towards this limit. The caller derives [`Launch::every`] from this limit.
    pub programs: u64,
    /// The maximum number of bytes of the programs with values. Dense tiles beyond this limit are
    /// marked as not recorded ([`Batch::elements`]); all other forms are still recorded.
    pub value_bytes: u64,
    /// The maximum number of bytes of all programs. Events and programs beyond this limit are
    /// dropped.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { programs: 256, value_bytes: 64 << 20, bytes: 256 << 20 }
    }
}

impl Recorder {
    /// Creates a trace file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(MAGIC)?;
        Ok(Self { file: Mutex::new(file), launches: AtomicU32::new(0), failure: Mutex::new(None) })
    }

    /// Allocates a number for the next launch.
    pub fn next_launch(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes the elements of a tensor in row-major order, before or after a launch.
    pub fn snapshot(&self, launch: u32, tensor: u32, is_after: bool, elements: &[u8]) {
        let mut head = Vec::new();
        head.number(launch.into());
        head.number(tensor.into());
        head.number(is_after.into());
        self.chunk(*b"TENS", &[&head, elements]);
    }

    /// Writes the findings of a sanitized launch, and the names of its checks.
    pub fn findings(&self, launch: u32, checks: &str, findings: &[Finding]) {
        let mut bytes = Vec::new();
        bytes.number(launch.into());
        bytes.text(checks);
        bytes.list(findings, |out, finding| finding.encode(out));
        self.chunk(*b"FIND", &[&bytes]);
    }

    /// Writes the facts about a launch that a simulated GPU ran.
    pub fn simulation(&self, launch: u32, simulation: &Simulation) {
        let mut bytes = Vec::new();
        bytes.number(launch.into());
        bytes.text(&simulation.device);
        bytes.number(simulation.warps.into());
        bytes.text(&simulation.code);
        self.chunk(*b"SIMU", &[&bytes]);
    }

    /// Returns the first write error since the last call of this function, and clears it.
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
    /// True if the size limit is exceeded. Later programs are then dropped.
    is_full: AtomicBool,
}

impl<'a> Recording<'a> {
    /// Begins to record a launch whose number comes from [`Recorder::next_launch`].
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

    /// Returns the description of the launch.
    pub fn launch(&self) -> &'a Launch {
        self.launch
    }

    /// Creates an empty batch for the programs of one thread.
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

    /// Ends the recording. `failure` is the diagnostic of a failed launch.
    pub fn end(self, nanoseconds: u64, failure: Option<&str>) {
        let mut bytes = Vec::new();
        bytes.number(self.number.into());
        bytes.number(nanoseconds);
        bytes.text(failure.unwrap_or(""));
        self.recorder.chunk(*b"DONE", &[&bytes]);
    }
}

/// A batch: the record of the programs that one thread runs in sequence.
#[derive(Debug)]
pub struct Batch<'a> {
    recording: &'a Recording<'a>,
    programs: Vec<u8>,
    events: Vec<u8>,
    number: u64,
    flags: u64,
    /// The bytes that the current program may still use for dense elements. `left` is its limit for
    /// all events.
    values_left: usize,
    left: usize,
}

/// A program begins no event after it has used 1 / `SHARE` of the bytes that remain for all
/// programs.
const SHARE: i64 = 8;

impl Batch<'_> {
    /// Begins the program with this linear index.
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

    /// Returns whether values are recorded for the program.
    pub fn has_values(&self) -> bool {
        self.flags & WITH_VALUES != 0
    }

    /// Begins an event. Returns false if the program has used all its space.
    pub fn event(&mut self, op: u32) -> bool {
        if self.events.len() >= self.left {
            self.flags |= CUT_SHORT;
            return false;
        }
        self.events.number(op.into());
        true
    }

    /// Returns the position of the next event in the record of the program.
    /// [`rewind`](Self::rewind) accepts this position.
    pub fn mark(&self) -> usize {
        self.events.len()
    }

    /// Drops everything that was recorded since [`mark`](Self::mark) returned this position.
    pub fn rewind(&mut self, mark: usize) {
        self.events.truncate(mark);
    }

    /// Ends an event with its duration. Call this function only in programs with values.
    pub fn end_event(&mut self, nanoseconds: u64) {
        self.events.number(nanoseconds);
    }

    /// Marks a value as not recorded.
    pub fn absent(&mut self) {
        self.events.push(0);
    }

    /// Writes the parameter to which the pointers of the next value are relative. With `None`,
    /// these pointers are addresses. Call this function before each pointer value.
    pub fn relative_to(&mut self, parameter: Option<usize>) {
        self.events.number(parameter.map_or(0, |parameter| parameter as u64 + 1));
    }

    /// Writes a value whose elements all have these bits.
    pub fn uniform(&mut self, bits: u64) {
        self.events.push(1);
        self.events.number(bits);
    }

    /// Writes a value in affine form.
    pub fn affine(&mut self, base: i64, strides: &[i64]) {
        self.events.push(2);
        self.events.signed(base);
        for &stride in strides {
            self.events.signed(stride);
        }
    }

    /// Writes booleans that are true inside a box.
    pub fn ranges(&mut self, ranges: impl Iterator<Item = (u32, u32)>) {
        self.events.push(3);
        for (low, high) in ranges {
            self.events.number(low.into());
            self.events.number(high.into());
        }
    }

    /// Writes the elements of a value. If the space does not suffice, marks the value as not
    /// recorded.
    pub fn elements(&mut self, bytes: &[u8]) {
        if bytes.len() > self.values_left {
            self.flags |= CUT_SHORT;
            return self.absent();
        }
        self.values_left -= bytes.len();
        self.events.push(4);
        self.events.extend_from_slice(bytes);
    }

    /// Writes pointers as byte offsets from the parameter that was passed to
    /// [`relative_to`](Self::relative_to). If `None` was passed, writes them as addresses.
    pub fn pointers(&mut self, offsets: impl Iterator<Item = i64> + Clone) {
        if offsets.clone().all(|offset| i32::try_from(offset).is_ok()) {
            self.events.push(6);
            offsets.for_each(|offset| self.events.extend_from_slice(&(offset as i32).to_le_bytes()));
        } else {
            self.events.push(5);
            offsets.for_each(|offset| self.events.extend_from_slice(&offset.to_le_bytes()));
        }
    }

    /// Writes booleans. `bytes` has one byte for each of them.
    pub fn bits(&mut self, bytes: &[u8]) {
        self.events.push(7);
        let packed = bytes.chunks(8).map(|eight| {
            eight.iter().enumerate().fold(0, |bits, (index, &byte)| bits | (u8::from(byte != 0) << index))
        });
        self.events.extend(packed);
    }

    /// Ends the program. `has_stopped` is true if the program failed or was interrupted at its last
    /// event. If earlier programs have exceeded the size limit of the launch, the program is
    /// dropped.
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
