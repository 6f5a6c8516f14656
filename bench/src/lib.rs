//! Synthetic source, load generators, benchmarks, and the demo that shows a node at work.
//!
//! A node under test is a child process, as a user runs it; nothing here runs on its cores.

pub mod catch_up;
pub mod children;
pub mod clock;
pub mod demo;
pub mod ends;
mod folder;
pub mod ground;
pub mod lag;
pub mod landing;
pub mod load;
pub mod node;
pub mod peers;
pub mod published;
pub mod reader;
pub mod recover;
pub mod report;
pub mod run;
pub mod scale;
pub mod serve;
pub mod tcp_info;
pub mod wan;
