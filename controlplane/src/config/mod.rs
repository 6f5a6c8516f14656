//! What the operator writes: the node's TOML file and a mirror's `.properties`.
//!
//! Read once, into types whose values are in range; everything that is wrong is reported together,
//! with the nearest right key for one that does not exist.

mod command;
mod mirror;
mod nearest;
mod node;

pub use command::CommandConfig;
pub use mirror::{GapPolicy, MirrorConfig, MirrorConfigError, read_properties};
pub use nearest::nearest;
pub use node::{
    CoreSettings, CoresConfig, HttpConfig, MirrorDefaults, NodeConfig, NodeConfigError,
    ServeConfig, StorageSettings,
};
