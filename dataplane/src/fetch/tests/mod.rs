//! Lanes against a scripted source.

mod driver;
mod faults;
mod landing;
mod lanes;
mod pair;
mod session;
mod simulation;
