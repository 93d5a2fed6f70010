//! Shrinks the text of a kernel that shows a failure.

use std::collections::HashMap;

/// Returns a shorter kernel, and a number of programs, for which `fails` is still true. `fails` is
/// false for malformed texts. Addresses change only if `may_replace` is true.
pub fn shrink(
    text: &str,
    programs: u32,
    may_replace: bool,
    fails: &dyn Fn(&str, u32) -> bool,
) -> (String, u32) {
    let mut best = (text.to_owned(), programs);
    for fewer in 1..programs {
        if fails(text, fewer) {
            best.1 = fewer;
            break;
        }
    }
    let fails = |text: &str| fails(text, best.1);
    while drop_lines(&mut best.0, &fails) | (may_replace && replace_values(&mut best.0, &fails)) {}
    best
}

fn try_change(best: &mut String, changed: String, fails: &dyn Fn(&str) -> bool) -> bool {
    let changed = without_unused(changed);
    let is_adopted = changed != *best && changed.len() <= best.len() && fails(&changed);
    if is_adopted {
        *best = changed;
    }
    is_adopted
}

/// Returns the lines of each statement, including its regions.
fn statements(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("kernel") || line == "}" {
            continue;
        }
        if line.ends_with('{') {
            open.push(number);
        } else if line.trim().starts_with('}') {
            found.push(open.pop().unwrap_or(number)..number + 1);
        } else {
            found.push(number..number + 1);
        }
    }
    found
}

fn without(text: &str, lines: &std::ops::Range<usize>) -> String {
    let kept = text.lines().enumerate().filter(|(number, _)| !lines.contains(number));
    kept.flat_map(|(_, line)| [line, "\n"]).collect()
}

/// Returns the name and the type of the result of a statement, if it has exactly one.
fn results<'t>(lines: &[&'t str]) -> Vec<(&'t str, &'t str)> {
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Vec::new() };
    let Some((names, _)) = first.split_once(" = ").filter(|(names, _)| names.trim().starts_with('%')) else {
        return Vec::new();
    };
    let Some((_, types)) = last.rsplit_once(" : ") else { return Vec::new() };
    let names: Vec<&str> = names.trim().split(", ").collect();
    // Shapes contain commas, so the types of several results cannot be split.
    if names.len() == 1 { vec![(names[0], types)] } else { Vec::new() }
}

fn uses(text: &str, name: &str) -> usize {
    text.match_indices(name).filter(|(at, _)| is_whole(text, *at, name)).count()
}

fn is_whole(text: &str, at: usize, name: &str) -> bool {
    let next = text[at + name.len()..].chars().next();
    next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
}

fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut result = String::new();
    let mut end = 0;
    for (at, _) in text.match_indices(from).filter(|(at, _)| is_whole(text, *at, from)) {
        result.push_str(&text[end..at]);
        result.push_str(to);
        end = at + from.len();
    }
    result + &text[end..]
}

/// Removes the statements, except loops, whose results are unused.
fn without_unused(mut text: String) -> String {
    loop {
        let lines: Vec<&str> = text.lines().collect();
        let unused = statements(&text).into_iter().find(|range| {
            let is_for = lines[range.start].contains("for_loop");
            let results = results(&lines[range.clone()]);
            !is_for && !results.is_empty() && results.iter().all(|(name, _)| uses(&text, name) == 1)
        });
        match unused {
            Some(range) => text = without(&text, &range),
            None => return text,
        }
    }
}

fn drop_lines(best: &mut String, fails: &dyn Fn(&str) -> bool) -> bool {
    let mut changed = false;
    let mut next = statements(best).len();
    while next > 0 {
        next -= 1;
        if let Some(range) = statements(best).get(next) {
            let text = without(best, range);
            changed |= try_change(best, text, fails);
        }
    }
    changed
}

/// Replaces a value by an earlier value of the same type, and drops optional operands.
fn replace_values(best: &mut String, fails: &dyn Fn(&str) -> bool) -> bool {
    let mut changed = false;
    let mut next = statements(best).len();
    while next > 0 {
        next -= 1;
        let text = best.clone();
        let lines: Vec<&str> = text.lines().collect();
        let all = statements(&text);
        let Some(range) = all.get(next) else { continue };
        let mut earlier: HashMap<&str, Vec<&str>> = HashMap::new();
        for other in &all[..next] {
            for (name, ty) in results(&lines[other.clone()]) {
                earlier.entry(ty).or_default().push(name);
            }
        }
        for (name, ty) in results(&lines[range.clone()]) {
            let candidates = earlier.get(ty).map_or(&[][..], Vec::as_slice);
            for other in candidates.iter().take(12) {
                let removed = without(&text, range);
                if try_change(best, renamed(&removed, name, other), fails) {
                    changed = true;
                    break;
                }
            }
        }
        let line = lines[range.start];
        let is_access = line.contains("= load ") || line.trim().starts_with("store ");
        if *best == text
            && is_access
            && let Some((start, rest)) = line.split_once(" {")
            && let Some((start, _)) = start.rsplit_once(", ")
        {
            let shorter = format!("{start} {{{rest}");
            let mut lines = lines.clone();
            lines[range.start] = &shorter;
            changed |= try_change(best, lines.join("\n") + "\n", fails);
        }
    }
    changed
}
