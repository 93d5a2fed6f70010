//! Times kernels on a GPU while a profile is active.
//!
//! CUPTI times the kernels if it is available, and two events around each launch otherwise. Events
//! are always recorded, because CUPTI may miss a kernel. A note reports a launch without a time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::Code;
use tilewright_cuda::{Context, Cupti, Event, KernelTime, StreamRef};

use crate::Error;
use crate::clock::profile_clock;

/// The way in which a launch is timed.
pub(crate) enum Timing {
    /// By two events around the launch, and by CUPTI if the launch has a correlation id.
    Around { number: Option<u64>, before: Event, after: Event },
    /// Not timed. A CUDA graph has captured the launch, and may run it any number of times.
    Captured,
}

/// The measured start and duration of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    /// The start of the kernel in nanoseconds of [`profile_clock`], or else the start of the launch
    /// on the host.
    pub(crate) start: u64,
    pub(crate) nanoseconds: f64,
    /// The source of the time: `cupti`, `events`, `model` or `clock`.
    pub(crate) by: &'static str,
}

/// CUPTI while it records kernels.
#[derive(Clone, Copy)]
struct Running {
    cupti: &'static Cupti,
    /// CUPTI's clock minus the profile's clock, in nanoseconds.
    ahead: i128,
}

/// The running CUPTI, or the reason why it cannot run; `None` before a profile's first launch on a
/// GPU.
static RUNNING: Mutex<Option<Result<Running, String>>> = Mutex::new(None);
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the folders in which to search for CUPTI. Python packages contain the library, and the
/// system may not have it elsewhere.
pub fn set_cupti_folders(folders: Vec<PathBuf>) {
    *locked(&FOLDERS) = folders;
}

/// The timing state of a launch that is about to begin.
pub(crate) struct Before {
    cupti: Option<(&'static Cupti, u64)>,
    event: Option<Event>,
    context: Context,
}

/// Begins to time a launch of this thread. [`Before::after`] or dropping the [`Before`] ends the
/// timing.
pub(crate) fn before(context: Context, stream: StreamRef<'_>) -> Result<Before, Error> {
    if context.is_capturing(stream)? {
        return Ok(Before { cupti: None, event: None, context });
    }
    let event = Event::new(context)?;
    event.record(stream)?;
    let cupti = running(context).ok().and_then(|running| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        running.cupti.push(number).ok().map(|()| (running.cupti, number))
    });
    Ok(Before { cupti, event: Some(event), context })
}

impl Before {
    /// Ends the timing, after the caller has put the launch on the stream.
    pub(crate) fn after(mut self, stream: StreamRef<'_>) -> Result<Timing, Error> {
        let number = self.cupti.take().map(|(cupti, number)| {
            cupti.pop();
            number
        });
        let Some(before) = self.event.take() else { return Ok(Timing::Captured) };
        let after = Event::new(self.context)?;
        after.record(stream)?;
        Ok(Timing::Around { number, before, after })
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some((cupti, _)) = self.cupti {
            cupti.pop();
        }
    }
}

/// Returns the running CUPTI, or the reason why it cannot run. The first call in a profile starts
/// it.
fn running(context: Context) -> Result<Running, String> {
    let begin = || {
        let driver = context.device().driver().version();
        let cupti = Cupti::get(driver, &locked(&FOLDERS))?;
        cupti.start()?;
        let ahead = i128::from(cupti.clock()?) - i128::from(profile_clock());
        Ok(Running { cupti, ahead })
    };
    locked(&RUNNING).get_or_insert_with(begin).clone()
}

/// Stops CUPTI from recording kernels.
pub(crate) fn stop() {
    if let Some(Ok(running)) = locked(&RUNNING).take() {
        running.cupti.stop();
    }
}

/// Returns the time of each launch, if it was timed, and notes about the times. `timings` has the
/// start on the host and the timing of each launch.
pub(crate) fn take(timings: &[(u64, &Timing)]) -> (Vec<Option<Time>>, Vec<String>) {
    let mut notes = Vec::new();
    if timings.is_empty() {
        return (Vec::new(), notes);
    }
    // CUPTI has complete records only of kernels that have ended.
    let ended: Vec<Result<(), String>> = timings
        .iter()
        .map(|(_, timing)| match timing {
            Timing::Around { after, .. } => after.synchronize().map_err(|error| error.to_string()),
            Timing::Captured => Err("captured into a CUDA graph, whose launches are not timed".into()),
        })
        .collect();
    let running = locked(&RUNNING).clone();
    let mut kernels = FxHashMap::default();
    let mut why_not = None;
    match &running {
        Some(Ok(running)) => match running.cupti.take() {
            Ok(times) => {
                kernels = times.into_iter().map(|time| (time.number, (running.ahead, time))).collect();
            }
            Err(error) => why_not = Some(error),
        },
        Some(Err(error)) => why_not = Some(error.clone()),
        None => {}
    }
    let mut lacking: Vec<(String, usize)> = Vec::new();
    let mut by_events = 0;
    let times = timings.iter().zip(ended).map(|((host, timing), ended)| {
        if let Some(time) = by_cupti(timing, &kernels) {
            return Some(time);
        }
        match ended.and_then(|()| on_events(timing, first(timings, *host)).map_err(|error| error.to_string()))
        {
            Ok(time) => {
                by_events += 1;
                Some(time)
            }
            Err(why) => {
                match lacking.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, count)) => *count += 1,
                    None => lacking.push((why, 1)),
                }
                None
            }
        }
    });
    let times: Vec<Option<Time>> = times.collect();
    if by_events > 0 {
        let why = why_not.unwrap_or_else(|| "it has no record of them".into());
        notes.push(format!(
            "note: {by_events} of {} launches on a GPU are timed by events, which add some \
             microseconds to short kernels, because CUPTI did not time them: {why}",
            times.len()
        ));
    }
    for (why, count) in lacking {
        let launches = if count == 1 { "launch was" } else { "launches were" };
        notes.push(format!("warning[{}]: {count} {launches} not timed: {why}", Code::NotTimed.name()));
    }
    (times, notes)
}

fn by_cupti(timing: &Timing, kernels: &FxHashMap<u64, (i128, KernelTime)>) -> Option<Time> {
    let Timing::Around { number: Some(number), .. } = timing else { return None };
    let (ahead, time) = kernels.get(number)?;
    let start = u64::try_from(i128::from(time.start) - ahead).unwrap_or(0);
    Some(Time { start, nanoseconds: (time.end - time.start) as f64, by: "cupti" })
}

/// Returns the host time and the first event of the first launch with events, or else `host` and
/// `None`.
fn first<'a>(timings: &[(u64, &'a Timing)], host: u64) -> (u64, Option<&'a Event>) {
    let events = timings.iter().find_map(|(start, timing)| match timing {
        Timing::Around { before, .. } => Some((*start, Some(before))),
        Timing::Captured => None,
    });
    events.unwrap_or((host, None))
}

fn on_events(timing: &Timing, (start, first): (u64, Option<&Event>)) -> Result<Time, tilewright_cuda::Error> {
    let (Timing::Around { before, after, .. }, Some(first)) = (timing, first) else {
        return Ok(Time { start, nanoseconds: 0.0, by: "events" });
    };
    let begun = f64::from(first.milliseconds_until(before)?.max(0.0)) * 1e6;
    let nanoseconds = f64::from(before.milliseconds_until(after)?) * 1e6;
    Ok(Time { start: start + begun as u64, nanoseconds, by: "events" })
}
