//! The jars of Kafka and MirrorMaker 2: found in a cache directory, or fetched into it with Maven.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::PeerError;
use super::foreign::{Foreign, require};
use crate::folder::Folder;
use crate::run::Session;

/// The broker that peers are measured on.
const KAFKA_VERSION: &str = "4.4.0";
/// The newest MirrorMaker 2 that Maven has.
const MIRROR_MAKER_VERSION: &str = "4.3.1";
/// 92 jars over a slow line.
const FETCH_MAX: Duration = Duration::from_secs(900);

/// Where the jars are kept between runs.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// What `java -cp` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPath(pub(super) String);

/// A set of jars.
struct Wanted {
    title: &'static str,
    folder: String,
    artifacts: &'static [&'static str],
    version: &'static str,
    without: &'static str,
}

impl Cache {
    /// The directory given; else `$LONGHAUL_CACHE`, `$XDG_CACHE_HOME/longhaul` or `~/.cache/longhaul`.
    ///
    /// # Errors
    /// When there is none of them.
    pub fn at(given: Option<PathBuf>) -> Result<Self, PeerError> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let directory = given
            .or_else(|| from("LONGHAUL_CACHE").map(PathBuf::from))
            .or_else(|| from("XDG_CACHE_HOME").map(|home| Path::new(&home).join("longhaul")))
            .or_else(|| from("HOME").map(|home| Path::new(&home).join(".cache/longhaul")));
        let directory = directory.ok_or_else(|| {
            PeerError::Failed(
                "there is no home directory to keep Kafka in: give --cache DIR".into(),
            )
        })?;
        Ok(Self { directory })
    }

    /// Kafka's broker and tools. `without` is the option that asks for them.
    ///
    /// # Errors
    /// When they are not there and cannot be fetched.
    pub fn kafka(&self, session: &Session, without: &'static str) -> Result<ClassPath, PeerError> {
        self.provide(
            session,
            &Wanted {
                title: "Apache Kafka",
                folder: format!("kafka-{KAFKA_VERSION}"),
                artifacts: &["kafka_2.13", "kafka-tools"],
                version: KAFKA_VERSION,
                without,
            },
        )
    }

    /// MirrorMaker 2.
    ///
    /// # Errors
    /// When it is not there and cannot be fetched.
    pub fn mirror_maker(&self, session: &Session) -> Result<ClassPath, PeerError> {
        self.provide(
            session,
            &Wanted {
                title: "MirrorMaker 2 (connect-mirror)",
                folder: format!("connect-mirror-{MIRROR_MAKER_VERSION}"),
                artifacts: &["connect-mirror"],
                version: MIRROR_MAKER_VERSION,
                without: "--with-mm2",
            },
        )
    }

    fn provide(&self, session: &Session, wanted: &Wanted) -> Result<ClassPath, PeerError> {
        require(
            "java",
            "a Java runtime of version 17 or newer (openjdk-17-jre-headless)",
            wanted.without,
        )?;
        let folder = self.directory.join(&wanted.folder);
        if !folder.join(".complete").exists() {
            require("mvn", "Apache Maven (maven)", wanted.without)?;
            self.fetch(session, wanted, &folder)?;
        }
        Ok(ClassPath(format!("{}/*", folder.display())))
    }

    /// Into a folder beside, which takes its place when all is there: two commands may fetch at once.
    fn fetch(&self, session: &Session, wanted: &Wanted, folder: &Path) -> Result<(), PeerError> {
        let (title, version) = (wanted.title, wanted.version);
        session.say(&format!(
            "fetching {title} {version} with Maven into {} (once)",
            folder.display()
        ));
        fs::create_dir_all(&self.directory)
            .map_err(PeerError::io(format!("make {}", self.directory.display())))?;
        let work = Folder::make(&self.directory, "fetching")
            .map_err(PeerError::io(format!("write to {}", self.directory.display())))?;
        let (pom, jars) = (work.path().join("pom.xml"), work.path().join("jars"));
        fs::write(&pom, pom_text(wanted)).map_err(PeerError::io("write a pom.xml"))?;
        let mut command =
            Foreign::command(&(Arc::new(|program: &Path| Command::new(program)) as _), "mvn");
        command.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
        command.arg(format!("-DoutputDirectory={}", jars.display()));
        Foreign::start("Maven", command, Some(work.path().join("output.txt")))?
            .finish(session, FETCH_MAX)
            .map_err(|error| match error {
                PeerError::Failed(words) => PeerError::Failed(format!(
                    "cannot fetch {title} {version}: {words}\nMaven needs its registry, or a mirror of it in its \
                     settings.xml; or copy the jars to {} and make an empty file .complete there",
                    folder.display()
                )),
                other => other,
            })?;
        fs::write(jars.join(".complete"), "").map_err(PeerError::io("complete the jars"))?;
        // What an ended fetch of an older version left is in the way; another command's complete one stays.
        if !folder.join(".complete").exists() {
            let _ = fs::remove_dir_all(folder);
        }
        match fs::rename(&jars, folder) {
            Err(_) if folder.join(".complete").exists() => Ok(()),
            other => other.map_err(PeerError::io(format!("make {}", folder.display()))),
        }
    }
}

fn pom_text(wanted: &Wanted) -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let mut dependencies: String = wanted
        .artifacts
        .iter()
        .map(|artifact| dependency("org.apache.kafka", artifact, wanted.version))
        .collect();
    dependencies.push_str(&dependency("org.slf4j", "slf4j-simple", "1.7.36"));
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>longhaul</groupId><artifactId>peers</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jars_that_are_there_are_not_fetched() {
        if require("java", "", "").is_err() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join(format!("kafka-{KAFKA_VERSION}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(".complete"), "").unwrap();
        let session = Session::begin("test", "?", Arc::default(), |line| panic!("{line}"));
        let cache = Cache::at(Some(directory.path().to_owned())).unwrap();
        let class_path = cache.kafka(&session, "--with-kafka").unwrap();
        assert_eq!(class_path.0, format!("{}/*", folder.display()));
    }
}
