//! Writing JSON.

use std::fmt::Write;

/// A text with JSON in it, written part by part.
#[derive(Default)]
pub struct Json(pub String);

impl Json {
    /// A comma, if the value that follows is not the first.
    pub fn separate(&mut self) {
        if !matches!(self.0.chars().last(), None | Some('{' | '[' | ':' | ',')) {
            self.0.push(',');
        }
    }

    /// An object or, with `[`, a list.
    pub fn nest(&mut self, open: char, content: impl FnOnce(&mut Self)) {
        self.separate();
        self.0.push(open);
        content(self);
        self.0.push(if open == '{' { '}' } else { ']' });
    }

    /// The key of the value that follows.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.text(key);
        self.0.push(':');
        self
    }

    /// A text, quoted.
    pub fn text(&mut self, text: &str) {
        self.separate();
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                character if (character as u32) < 0x20 => {
                    let _ = write!(self.0, "\\u{:04x}", character as u32);
                }
                character => self.0.push(character),
            }
        }
        self.0.push('"');
    }

    /// A number, or anything else that JSON writes as Rust does.
    pub fn plain(&mut self, value: impl std::fmt::Display) {
        self.separate();
        let _ = write!(self.0, "{value}");
    }

    /// A list of numbers.
    pub fn list<T: std::fmt::Display>(&mut self, items: impl IntoIterator<Item = T>) {
        self.nest('[', |json| items.into_iter().for_each(|item| json.plain(item)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut json = Json::default();
        json.nest('{', |json| {
            json.key("a\"").text("b\n\\");
            json.key("c").list([1, 2]);
            json.key("d").nest('[', |_| {});
        });
        assert_eq!(json.0, "{\"a\\\"\":\"b\\u000a\\\\\",\"c\":[1,2],\"d\":[]}");
    }
}
