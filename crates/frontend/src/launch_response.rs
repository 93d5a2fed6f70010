//! Defines the response to a request for a program that has not begun (Gluon). Such a value exists
//! only in the frontend.

/// A noun for a response, for messages.
pub const LAUNCH_RESPONSE: &str = "a response of `try_cancel`";

/// The names of the parts of a response, for messages.
pub const LAUNCH_RESPONSE_PARTS: [&str; 4] =
    ["is_canceled", "program_id(0)", "program_id(1)", "program_id(2)"];

/// The methods of a response.
pub const LAUNCH_RESPONSE_METHODS: &[&str] = &["is_canceled", "program_id"];

/// A response: whether a program was taken over, and its indices. `T` is the type of the parts.
#[derive(Clone, Debug)]
pub struct LaunchResponse<T> {
    /// An int1: true if a program was taken over.
    pub is_canceled: T,
    /// The index of that program along each axis (int32).
    pub program_ids: [T; 3],
}

impl<T> LaunchResponse<T> {
    /// Returns the parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.is_canceled).chain(&self.program_ids)
    }

    /// Maps each part, in order.
    pub fn map<U>(&self, mut each: impl FnMut(&T) -> U) -> LaunchResponse<U> {
        LaunchResponse {
            is_canceled: each(&self.is_canceled),
            program_ids: self.program_ids.each_ref().map(each),
        }
    }
}
