//! Defines a pass, one step of a pipeline. A pipeline is a list of passes, such as `PASSES` of the
//! crate `opt`, that [`run_passes`] runs.

use std::convert::Infallible;

/// A named transformation of `T` that may fail with `E`. `T` is, for example, a function, a module,
/// or a listing of PTX.
#[derive(Debug)]
pub struct Pass<T, E = Infallible> {
    /// The name of the pass in dumps, remarks and tests.
    pub name: &'static str,
    step: Step<T, E>,
    needs: Option<fn(&T) -> bool>,
}

#[derive(Debug)]
enum Step<T, E> {
    Always(fn(&mut T)),
    Reporting(fn(&mut T) -> bool),
    Fallible(fn(&mut T) -> Result<(), E>),
    Cleanup(fn(&mut T)),
}

impl<T, E> Pass<T, E> {
    /// Returns a pass that succeeds on every input.
    pub const fn new(name: &'static str, run: fn(&mut T)) -> Self {
        Self { name, step: Step::Always(run), needs: None }
    }

    /// Returns a pass that reports whether it changed its input.
    pub const fn reporting(name: &'static str, run: fn(&mut T) -> bool) -> Self {
        Self { name, step: Step::Reporting(run), needs: None }
    }

    /// Returns a pass that may refuse its input.
    pub const fn fallible(name: &'static str, run: fn(&mut T) -> Result<(), E>) -> Self {
        Self { name, step: Step::Fallible(run), needs: None }
    }

    /// Returns a cleanup pass. [`run_passes`] skips it unless a reporting pass has changed its
    /// input since the last cleanup.
    pub const fn cleanup(name: &'static str, run: fn(&mut T)) -> Self {
        Self { name, step: Step::Cleanup(run), needs: None }
    }

    /// Returns the same pass, which [`run_passes`] skips if `needs` returns false.
    #[must_use]
    pub const fn when(mut self, needs: fn(&T) -> bool) -> Self {
        self.needs = Some(needs);
        self
    }

    /// Runs the pass; returns true if it reports a change.
    ///
    /// # Errors
    /// Returns the error of a fallible pass.
    pub fn run(&self, input: &mut T) -> Result<bool, E> {
        match self.step {
            Step::Always(run) | Step::Cleanup(run) => run(input),
            Step::Reporting(run) => return Ok(run(input)),
            Step::Fallible(run) => run(input)?,
        }
        Ok(false)
    }
}

/// Runs passes in order, and calls `after` after each pass that was not skipped.
///
/// # Errors
/// Returns the error of the first pass that fails. No other pass runs after it.
pub fn run_passes<T, E>(
    passes: &[Pass<T, E>],
    input: &mut T,
    mut after: impl FnMut(&'static str, &mut T),
) -> Result<(), E> {
    let mut is_changed = false;
    for pass in passes {
        let is_cleanup = matches!(pass.step, Step::Cleanup(_));
        if is_cleanup && !is_changed || pass.needs.is_some_and(|needs| !needs(input)) {
            continue;
        }
        is_changed = pass.run(input)? || is_changed && !is_cleanup;
        after(pass.name, input);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleanup_runs_only_after_a_change() {
        let passes: [Pass<String>; 6] = [
            Pass::cleanup("too early", |text| text.push('1')),
            Pass::reporting("changes", |text| !text.is_empty()),
            Pass::new("says nothing", |text| text.push('2')),
            Pass::cleanup("cleanup", |text| text.push('3')),
            Pass::cleanup("again", |text| text.push('4')),
            Pass::new("needs more", |text: &mut String| text.push('5')).when(|text| text.len() > 3),
        ];
        let mut names = Vec::new();
        for (input, output) in [("a", "a23"), ("", "2"), ("ab", "ab235")] {
            let mut text = input.to_owned();
            names.clear();
            let Ok(()) = run_passes(&passes, &mut text, |name, _| names.push(name));
            assert_eq!(text, output);
        }
        assert_eq!(names, ["changes", "says nothing", "cleanup", "needs more"]);
    }

    #[test]
    fn a_refusal_ends_the_list() {
        let passes: [Pass<u32, &str>; 3] = [
            Pass::new("adds", |number| *number += 1),
            Pass::fallible("refuses", |number| if *number > 1 { Err("too many") } else { Ok(()) }),
            Pass::new("adds again", |number| *number += 10),
        ];
        let mut number = 0;
        assert_eq!(run_passes(&passes, &mut number, |_, _| ()), Ok(()));
        assert_eq!((run_passes(&passes, &mut number, |_, _| ()), number), (Err("too many"), 12));
    }
}
